// Products with bfloat16 weights for many rows: tiles of weights and activations pass through shared memory, several
// steps ahead of the tensor cores. The chain of sums is that of linear_bf16.cu.
#include "common.cuh"

// k of a step: two chunks of 32, each of which the tensor cores take by two instructions.
#define CHUNK 32
#define STEP_CHUNKS 2

// A stage of shared memory holds [chunk][row][32 k], the weight's rows before those of the activations. A row has 64
// bytes, so the 16 bytes that 8 lanes read at once lie in 8 different groups of banks. In the second chunk neighbours are
// swapped, so that the same is true of what 8 threads write at once.
DEVICE u32 stage_offset(u32 rows, u32 chunk, u32 row, u32 part) { return (chunk * rows + (row ^ chunk)) * 64 + part * 16; }

// TILE_N outputs times TILE_M rows from `first_row` on by WARPS_N * WARPS_M warps. Block (x, y, z): any, tile of outputs,
// and `block_slices` slices. With several z the sums of slices go to `partial` [slices, rows, num_outputs].
template <int TILE_N, int TILE_M, int WARPS_N, int WARPS_M, int STAGES>
DEVICE void multiply_tile(const Product &product, u32 first_row, u32 block_slices, float *__restrict__ partial) {
  const int ROWS = TILE_N + TILE_M, THREADS = 32 * WARPS_N * WARPS_M;
  const int N_TILES = TILE_N / WARPS_N / 16, M_TILES = TILE_M / WARPS_M / 8, STAGE_BYTES = ROWS * STEP_CHUNKS * 64;
  DYNAMIC_SHARED(shared);
  u32 thread = threadIdx.x, lane = thread % WARP, warp = thread / WARP;
  u32 first_output = blockIdx.y * TILE_N;
  u32 slice_chunks = product.slice / CHUNK;
  u32 slice = blockIdx.z * block_slices;
  u32 chunk = slice * slice_chunks, end = min((slice + block_slices) * slice_chunks, product.stride / CHUNK);
  u32 steps = (end - chunk + STEP_CHUNKS - 1) / STEP_CHUNKS;

  // Each thread copies the same 16 bytes of every (THREADS / 8)th row.
  u32 copy_row = thread / 8, copy_chunk = thread / 4 % 2, copy_part = thread % 4;
  const u16 *weight = product.weight + (size_t)(chunk + copy_chunk) * CHUNK + copy_part * 8;
  const u16 *x = product.x + (size_t)(chunk + copy_chunk) * CHUNK + copy_part * 8;
  auto load = [&](u32 step) {
    unsigned char *stage = shared + step % STAGES * STAGE_BYTES;
    bool is_inside = chunk + step * STEP_CHUNKS + copy_chunk < end;
    size_t k = is_inside ? (size_t)step * STEP_CHUNKS * CHUNK : 0;
#pragma unroll
    for (int i = 0; i < ROWS / (THREADS / 8); i++) {
      u32 row = copy_row + i * (THREADS / 8);
      bool is_weight = row < TILE_N;
      u32 at = is_weight ? first_output + row : first_row + row - TILE_N;
      bool valid = is_inside && at < (is_weight ? product.out_features : product.rows);
      const u16 *from = is_weight ? weight : x;
      copy_async(stage + stage_offset(ROWS, copy_chunk, row, copy_part),
                 valid ? (const void *)(from + (size_t)at * product.stride + k) : (const void *)product.weight, valid);
    }
  };

  float sums[N_TILES][M_TILES][4] = {}, totals[N_TILES][M_TILES][4];
  u32 group = lane / 4, part = lane % 4;
  u32 warp_output = warp % WARPS_N * (TILE_N / WARPS_N), warp_row = warp / WARPS_N * (TILE_M / WARPS_M);
  bool is_split = gridDim.z > 1, is_first = true;
  u32 chunks_left = min(slice_chunks, end - chunk);

  // Value i of a fragment is of this output and row.
  auto output_of = [&](int n, int i) { return first_output + warp_output + n * 16 + group + i / 2 * 8; };
  auto row_of = [&](int m, int i) { return first_row + warp_row + m * 8 + part * 2 + i % 2; };

  for (u32 step = 0; step < STAGES - 1; step++) {
    if (step < steps) load(step);
    copy_async_commit();
  }
  for (u32 step = 0; step < steps; step++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) load(step + STAGES - 1);
    copy_async_commit();
    const unsigned char *stage = shared + step % STAGES * STAGE_BYTES;
#pragma unroll
    for (int half = 0; half < STEP_CHUNKS; half++) {
      if (chunk + step * STEP_CHUNKS + half >= end) break;
      uint4 b[M_TILES];
#pragma unroll
      for (int m = 0; m < M_TILES; m++)
        b[m] = *(const uint4 *)(stage + stage_offset(ROWS, half, TILE_N + warp_row + m * 8 + group, part));
#pragma unroll
      for (int n = 0; n < N_TILES; n++) {
        uint4 low = *(const uint4 *)(stage + stage_offset(ROWS, half, warp_output + n * 16 + group, part));
        uint4 high = *(const uint4 *)(stage + stage_offset(ROWS, half, warp_output + n * 16 + group + 8, part));
#pragma unroll
        for (int m = 0; m < M_TILES; m++) mma_bf16(sums[n][m], low.x, high.x, low.y, high.y, b[m].x, b[m].y);
#pragma unroll
        for (int m = 0; m < M_TILES; m++) mma_bf16(sums[n][m], low.z, high.z, low.w, high.w, b[m].z, b[m].w);
      }
      if (--chunks_left) continue;
      // A slice ends.
#pragma unroll
      for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            if (is_split) {
              u32 output = output_of(n, i), row = row_of(m, i);
              if (output < product.num_outputs && row < product.rows)
                partial[((size_t)slice * product.rows + row) * product.num_outputs + output] = sums[n][m][i];
            } else {
              totals[n][m][i] = is_first ? sums[n][m][i] : totals[n][m][i] + sums[n][m][i];
            }
            sums[n][m][i] = 0.0f;
          }
      is_first = false;
      slice++;
      chunks_left = min(slice_chunks, end - slice * slice_chunks);
    }
  }
  if (is_split) return;
#pragma unroll
  for (int n = 0; n < N_TILES; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 output = output_of(n, i);
      if (output >= product.num_outputs) continue;
      float bias = product.bias ? product.bias[output] : 0.0f;
#pragma unroll
      for (int m = 0; m < M_TILES; m++) {
        u32 row = row_of(m, i);
        if (row < product.rows)
          product.out[(size_t)row * product.num_outputs + output] =
              product.bias ? totals[n][m][i] + bias : totals[n][m][i];
      }
    }
}

// 128 threads; shared memory: 4 stages of 96 rows, 128 bytes each.
KERNEL(linear_bf16_tile_32)(const u16 *x, u32 rows, const u16 *weight, u32 out_features, u32 stride, const float *bias,
                            float *out, u32 slice, u32 block_slices, float *partial) {
  wait_for_previous();
  Product product = {x, rows, weight, out_features, stride, bias, nullptr, out_features, out, slice};
  multiply_tile<64, 32, 4, 1, 4>(product, blockIdx.x * 32, block_slices, partial);
}

// 128 threads; shared memory: 3 stages of 192 rows.
KERNEL(linear_bf16_tile_64)(const u16 *x, u32 rows, const u16 *weight, u32 out_features, u32 stride, const float *bias,
                            float *out, u32 slice, u32 block_slices, float *partial) {
  wait_for_previous();
  Product product = {x, rows, weight, out_features, stride, bias, nullptr, out_features, out, slice};
  multiply_tile<128, 64, 4, 1, 3>(product, blockIdx.x * 64, block_slices, partial);
}

// 256 threads; shared memory: 3 stages of 256 rows.
KERNEL(linear_bf16_tile_128)(const u16 *x, u32 rows, const u16 *weight, u32 out_features, u32 stride, const float *bias,
                             float *out, u32 slice, u32 block_slices, float *partial) {
  wait_for_previous();
  Product product = {x, rows, weight, out_features, stride, bias, nullptr, out_features, out, slice};
  multiply_tile<128, 128, 2, 4, 3>(product, blockIdx.x * 128, block_slices, partial);
}

// Routed rows, as in linear_experts_bf16. Grid: (tiles of routed rows, tiles of outputs).
DEVICE Product product_of_expert(const u16 *x, const u32 *tile, const u32 *firsts, u32 tile_rows, const u16 *weight,
                                 u32 out_features, u32 stride, const float *bias, float *out, u32 slice) {
  u32 expert = tile[0];
  return {x,
          min(firsts[expert + 1], tile[1] + tile_rows),
          weight + (size_t)expert * out_features * stride,
          out_features,
          stride,
          bias ? bias + (size_t)expert * out_features : nullptr,
          nullptr,
          out_features,
          out,
          slice};
}

KERNEL(linear_experts_tile_32)(const u16 *x, const u32 *tiles, const u32 *firsts, const u16 *weight, u32 out_features,
                               u32 stride, const float *bias, float *out, u32 slice) {
  wait_for_previous();
  const u32 *tile = tiles + 2 * blockIdx.x;
  if (tile[0] == NONE) return;
  Product product = product_of_expert(x, tile, firsts, 32, weight, out_features, stride, bias, out, slice);
  multiply_tile<64, 32, 4, 1, 4>(product, tile[1], stride / CHUNK, nullptr);
}

KERNEL(linear_experts_tile_64)(const u16 *x, const u32 *tiles, const u32 *firsts, const u16 *weight, u32 out_features,
                               u32 stride, const float *bias, float *out, u32 slice) {
  wait_for_previous();
  const u32 *tile = tiles + 2 * blockIdx.x;
  if (tile[0] == NONE) return;
  Product product = product_of_expert(x, tile, firsts, 64, weight, out_features, stride, bias, out, slice);
  multiply_tile<128, 64, 4, 1, 3>(product, tile[1], stride / CHUNK, nullptr);
}

// out = the slices' sums in ascending order, plus bias. Grid: (parts of a row, rows).
KERNEL(sum_slices)(const float *__restrict__ partial, u32 slices, const float *__restrict__ bias,
                   float *__restrict__ out, u32 num_outputs) {
  wait_for_previous();
  u32 output = blockIdx.x * blockDim.x + threadIdx.x;
  if (output >= num_outputs) return;
  size_t at = (size_t)blockIdx.y * num_outputs + output, step = (size_t)gridDim.y * num_outputs;
  float total = partial[at];
  for (u32 slice = 1; slice < slices; slice++) total += partial[slice * step + at];
  out[at] = bias ? total + bias[output] : total;
}
#undef CHUNK
#undef STEP_CHUNKS
