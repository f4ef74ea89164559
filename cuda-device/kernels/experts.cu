// Mixtures of experts: who goes where, without the host.
//
// Everything a step needs is in lists on the device: `choices` and `weights` [rows, top_k], the experts of a row
// ascending; `firsts` [num_experts + 1], where each expert's routed rows begin; `routed` [rows * top_k], the row that a
// routed row is of; `places` [rows, top_k], where a choice stands among the routed rows; `tiles`, pairs of an expert and
// the first of at most `tile_rows` of its routed rows, filled up with NONE.
#include "common.cuh"

// The likeliest experts of each row, of equals the first, and their shares. One warp per row; shared memory:
// num_experts flags. Grid: (rows).
KERNEL(route_rows)(const float *__restrict__ logits, u32 num_experts, u32 top_k, u32 normalize,
                   u32 *__restrict__ choices, float *__restrict__ weights) {
  wait_for_previous();
  DYNAMIC_SHARED(taken);
  u32 lane = threadIdx.x;
  const float *row = logits + (size_t)blockIdx.x * num_experts;
  for (u32 expert = lane; expert < num_experts; expert += WARP) taken[expert] = 0;
  __syncwarp();
  float largest = 0.0f, chosen_sum = 0.0f;
  for (u32 k = 0; k < top_k; k++) {
    float best = 0.0f;
    u32 id = NONE;
    for (u32 expert = lane; expert < num_experts; expert += WARP)
      if (!taken[expert] && (id == NONE || row[expert] > best)) {
        best = row[expert];
        id = expert;
      }
    for (int step = 16; step > 0; step >>= 1) {
      float other = __shfl_xor_sync(FULL_WARP, best, step);
      u32 other_id = __shfl_xor_sync(FULL_WARP, id, step);
      // A NaN is neither larger nor equal: of two the lower id is kept, so that all lanes agree.
      bool larger = other > best || (!(best > other) && other_id < id);
      if (other_id != NONE && (id == NONE || larger)) {
        best = other;
        id = other_id;
      }
    }
    id = __shfl_sync(FULL_WARP, id, 0);
    best = __shfl_sync(FULL_WARP, best, 0);
    if (k == 0) largest = best;
    if (lane == 0) taken[id] = 1;
    chosen_sum += expf(best - largest);
    __syncwarp();
  }
  float total = chosen_sum;
  if (!normalize) {
    total = 0.0f;
    for (u32 expert = lane; expert < num_experts; expert += WARP) total += expf(row[expert] - largest);
    total = warp_sum(total);
  }
  u32 count = 0;
  for (u32 first = 0; first < num_experts; first += WARP) {
    u32 expert = first + lane;
    bool is_chosen = expert < num_experts && taken[expert];
    u32 bits = __ballot_sync(FULL_WARP, is_chosen);
    if (is_chosen) {
      u32 at = blockIdx.x * top_k + count + __popc(bits & ((1u << lane) - 1));
      choices[at] = expert;
      weights[at] = expf(row[expert] - largest) / total;
    }
    count += __popc(bits);
  }
}

// counts[expert] = rows that chose it. Grid: (num_experts).
KERNEL(count_routed)(const u32 *__restrict__ choices, u32 num_choices, u32 *__restrict__ counts) {
  wait_for_previous();
  __shared__ float room[32];
  u32 count = 0;
  for (u32 i = threadIdx.x; i < num_choices; i += blockDim.x) count += choices[i] == blockIdx.x;
  float sum = block_sum((float)count, room);
  if (threadIdx.x == 0) counts[blockIdx.x] = (u32)sum;
}

// Each expert's block lists its rows, ascending, and its tiles. Grid: (num_experts).
KERNEL(list_routed)(const u32 *__restrict__ choices, u32 num_choices, u32 top_k, const u32 *__restrict__ counts,
                    u32 *__restrict__ firsts, u32 *__restrict__ routed, u32 *__restrict__ places,
                    u32 *__restrict__ tiles, u32 num_tiles, u32 tile_rows) {
  wait_for_previous();
  __shared__ u32 found[32];
  u32 expert = blockIdx.x, first = 0, first_tile = 0;
  for (u32 before = 0; before < expert; before++) {
    first += counts[before];
    first_tile += (counts[before] + tile_rows - 1) / tile_rows;
  }
  u32 own_tiles = (counts[expert] + tile_rows - 1) / tile_rows;
  for (u32 i = threadIdx.x; i < own_tiles; i += blockDim.x) {
    tiles[2 * (first_tile + i)] = expert;
    tiles[2 * (first_tile + i) + 1] = first + i * tile_rows;
  }
  if (threadIdx.x == 0) firsts[expert] = first;
  if (expert == gridDim.x - 1) {
    if (threadIdx.x == 0) firsts[expert + 1] = first + counts[expert];
    for (u32 i = first_tile + own_tiles + threadIdx.x; i < num_tiles; i += blockDim.x) tiles[2 * i] = NONE;
  }
  u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  for (u32 start = 0; start < num_choices; start += blockDim.x) {
    u32 i = start + threadIdx.x;
    bool is_own = i < num_choices && choices[i] == expert;
    u32 bits = __ballot_sync(FULL_WARP, is_own);
    if (lane == 0) found[warp] = __popc(bits);
    __syncthreads();
    u32 at = first + __popc(bits & ((1u << lane) - 1)), all = 0;
    for (u32 other = 0; other < blockDim.x / WARP; other++) {
      if (other < warp) at += found[other];
      all += found[other];
    }
    if (is_own) {
      routed[at] = i / top_k;
      places[i] = at;
    }
    first += all;
    __syncthreads();
  }
}

// out[row] = sum of weight times routed row, the experts ascending. Grid: (parts of a row, rows).
KERNEL(combine_routed)(const float *__restrict__ routed, const u32 *__restrict__ places,
                       const float *__restrict__ weights, u32 top_k, float *__restrict__ out, u32 width) {
  wait_for_previous();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width) return;
  float sum = 0.0f;
  for (u32 k = 0; k < top_k; k++) {
    u32 choice = blockIdx.y * top_k + k;
    sum = multiply_add(weights[choice], routed[(size_t)places[choice] * width + i], sum);
  }
  out[(size_t)blockIdx.y * width + i] = sum;
}
