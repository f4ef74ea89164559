// Products with f32 weights, on the plain units: for checkpoints in f32, which are small.
//
// Chain of an output: 32 sums over k = lane, lane + 32, ..., added by halving steps of a warp, then the bias.
#include "common.cuh"

#define ROWS_AT_ONCE 8
#define WARPS 8

// Rows `first_row..` of x, at most ROWS_AT_ONCE, times one row of the weight per warp.
DEVICE void multiply_row(const float *__restrict__ x, u32 rows, const float *__restrict__ weight, u32 in_features,
                         float bias, float *__restrict__ out, u32 out_stride) {
  u32 lane = threadIdx.x % WARP;
  float sums[ROWS_AT_ONCE] = {};
  for (u32 k = lane; k < in_features; k += WARP) {
    float factor = weight[k];
    for (u32 row = 0; row < ROWS_AT_ONCE; row++)
      if (row < rows) sums[row] = multiply_add(factor, x[(size_t)row * in_features + k], sums[row]);
  }
  for (u32 row = 0; row < ROWS_AT_ONCE; row++) {
    if (row >= rows) break;
    float sum = warp_sum(sums[row]) + bias;
    if (lane == 0) out[(size_t)row * out_stride] = sum;
  }
}

// out[rows, num_outputs] = x * weight^T + bias, where output i is of weight row ids[i], or i where there are no ids.
// Grid: (outputs / WARPS, rows / ROWS_AT_ONCE).
KERNEL(linear_f32)(const float *x, u32 rows, const float *weight, u32 out_features, u32 in_features, const float *bias,
                   const u32 *ids, u32 num_outputs, float *out) {
  wait_for_previous();
  u32 output = blockIdx.x * WARPS + threadIdx.x / WARP;
  if (output >= num_outputs) return;
  u32 id = ids ? ids[output] : output, first = blockIdx.y * ROWS_AT_ONCE;
  float *to = out + (size_t)first * num_outputs + output;
  u32 count = min(rows - first, (u32)ROWS_AT_ONCE);
  if (id >= out_features) {
    for (u32 row = threadIdx.x % WARP; row < count; row += WARP) to[(size_t)row * num_outputs] = not_a_number();
    return;
  }
  multiply_row(x + (size_t)first * in_features, count, weight + (size_t)id * in_features, in_features,
               bias ? bias[id] : 0.0f, to, num_outputs);
}

// The same with routed rows: tile t holds `tiles[2 t + 1]`, the first of at most `tile_rows` rows of expert
// `tiles[2 t]`, which end where the expert's do. Grid: (outputs / WARPS, tiles).
KERNEL(linear_experts_f32)(const float *x, const u32 *tiles, const u32 *firsts, const float *weight, u32 out_features,
                           u32 in_features, const float *bias, float *out, u32 tile_rows) {
  wait_for_previous();
  u32 output = blockIdx.x * WARPS + threadIdx.x / WARP, expert = tiles[2 * blockIdx.y];
  if (output >= out_features || expert == NONE) return;
  u32 first = tiles[2 * blockIdx.y + 1], end = min(firsts[expert + 1], first + tile_rows);
  size_t id = (size_t)expert * out_features + output;
  for (; first < end; first += ROWS_AT_ONCE)
    multiply_row(x + (size_t)first * in_features, min(end - first, (u32)ROWS_AT_ONCE), weight + id * in_features,
                 in_features, bias ? bias[id] : 0.0f, out + (size_t)first * out_features + output, out_features);
}
#undef WARPS
#undef ROWS_AT_ONCE
