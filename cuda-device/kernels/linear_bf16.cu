// Products with bfloat16 weights for few rows, on the tensor cores: bound by the memory that the weights come from.
//
// Chain of an output, the same in every kernel of bfloat16 weights: k is cut into slices whose length depends on the
// weight's shape alone. Within a slice an accumulator takes 32 k at a time, by two instructions of 16: one for those
// with k % 8 < 4, one for the others. (So a lane's operands are 16 consecutive bytes of a row.) The slices' sums are
// added in ascending order, then the bias.
#include "common.cuh"

#define MAX_WARPS 8
#define CHUNK 32
#define CHUNKS_IN_FLIGHT 4

// Outputs and where they come from.
struct Product {
  const u16 *x; // [rows, stride]
  u32 rows;
  const u16 *weight; // [out_features, stride]
  u32 out_features, stride;
  const float *bias; // [out_features] or null
  const u32 *ids;    // [num_outputs] rows of the weight, or null
  u32 num_outputs;
  float *out; // [rows, num_outputs]
  u32 slice;  // k per slice, a multiple of CHUNK
};

DEVICE u32 weight_row(const Product &product, u32 output) {
  u32 last = product.num_outputs - 1, at = output < last ? output : last;
  u32 id = product.ids ? product.ids[at] : at;
  return id < product.out_features ? id : product.out_features - 1;
}

// One slice of 16 outputs times COLUMNS * 8 rows, into accumulators by the fragment's layout.
template <int COLUMNS>
DEVICE void multiply_slice(const Product &product, u32 first_output, u32 first_row, u32 slice,
                           float (&sums)[COLUMNS][4]) {
  u32 lane = threadIdx.x % WARP, group = lane / 4, part = lane % 4 * 8;
  u32 from = slice * product.slice, until = min(from + product.slice, product.stride);
  u32 chunks = (until - from) / CHUNK;
  const u16 *low = product.weight + (size_t)weight_row(product, first_output + group) * product.stride + from + part;
  const u16 *high =
      product.weight + (size_t)weight_row(product, first_output + group + 8) * product.stride + from + part;
  const u16 *x = product.x + (size_t)(first_row + group) * product.stride + from + part;
  for (u32 chunk = 0; chunk < chunks; chunk += CHUNKS_IN_FLIGHT) {
    uint4 a[CHUNKS_IN_FLIGHT][2];
#pragma unroll
    for (int i = 0; i < CHUNKS_IN_FLIGHT; i++)
      if (chunk + i < chunks) {
        a[i][0] = load_streamed((const uint4 *)(low + (chunk + i) * CHUNK));
        a[i][1] = load_streamed((const uint4 *)(high + (chunk + i) * CHUNK));
      }
#pragma unroll
    for (int i = 0; i < CHUNKS_IN_FLIGHT; i++) {
      if (chunk + i >= chunks) break;
#pragma unroll
      for (int column = 0; column < COLUMNS; column++) {
        uint4 b = make_uint4(0, 0, 0, 0);
        if (first_row + column * 8 + group < product.rows)
          b = *(const uint4 *)(x + (size_t)column * 8 * product.stride + (chunk + i) * CHUNK);
        mma_bf16(sums[column], a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, b.x, b.y);
        mma_bf16(sums[column], a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, b.z, b.w);
      }
    }
  }
}

// 16 outputs times COLUMNS * 8 rows: each warp takes one slice of MAX_WARPS, until there are no more.
template <int COLUMNS> DEVICE void multiply_few(const Product &product, u32 first_output, u32 first_row) {
  const int ROWS = COLUMNS * 8, ITEMS = 16 * ROWS;
  __shared__ float partial[MAX_WARPS][ITEMS];
  u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
  u32 slices = (product.stride + product.slice - 1) / product.slice;
  float totals[(ITEMS + WARP - 1) / WARP];
  for (u32 first = 0; first < slices; first += warps) {
    if (first + warp < slices) {
      float sums[COLUMNS][4] = {};
      multiply_slice<COLUMNS>(product, first_output, first_row, first + warp, sums);
#pragma unroll
      for (int column = 0; column < COLUMNS; column++)
        for (u32 i = 0; i < 4; i++) {
          u32 output = lane / 4 + i / 2 * 8, row = column * 8 + lane % 4 * 2 + i % 2;
          partial[warp][row * 16 + output] = sums[column][i];
        }
    }
    __syncthreads();
    u32 here = min(warps, slices - first);
#pragma unroll
    for (int i = 0; i < (ITEMS + WARP - 1) / WARP; i++) {
      u32 item = i * blockDim.x + threadIdx.x;
      if (item >= ITEMS) break;
      float total = first ? totals[i] : partial[0][item];
      for (u32 slice = first ? 0 : 1; slice < here; slice++) total += partial[slice][item];
      totals[i] = total;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < (ITEMS + WARP - 1) / WARP; i++) {
    u32 item = i * blockDim.x + threadIdx.x, output = first_output + item % 16, row = first_row + item / 16;
    if (item >= ITEMS || output >= product.num_outputs || row >= product.rows) continue;
    u32 id = product.ids ? product.ids[output] : output;
    float value = not_a_number();
    if (id < product.out_features) value = product.bias ? totals[i] + product.bias[id] : totals[i];
    product.out[(size_t)row * product.num_outputs + output] = value;
  }
}

// Grid: (outputs / 16, rows / 8).
KERNEL(linear_bf16_8)(const u16 *x, u32 rows, const u16 *weight, u32 out_features, u32 stride, const float *bias,
                      const u32 *ids, u32 num_outputs, float *out, u32 slice) {
  Product product = {x, rows, weight, out_features, stride, bias, ids, num_outputs, out, slice};
  multiply_few<1>(product, blockIdx.x * 16, blockIdx.y * 8);
}

// Grid: (outputs / 16, rows / 32).
KERNEL(linear_bf16_32)(const u16 *x, u32 rows, const u16 *weight, u32 out_features, u32 stride, const float *bias,
                       const u32 *ids, u32 num_outputs, float *out, u32 slice) {
  Product product = {x, rows, weight, out_features, stride, bias, ids, num_outputs, out, slice};
  multiply_few<4>(product, blockIdx.x * 16, blockIdx.y * 32);
}

// Routed rows, as in linear_experts_f32. Grid: (outputs / 16, tiles of 8 rows).
KERNEL(linear_experts_bf16)(const u16 *x, const u32 *tiles, const u32 *firsts, const u16 *weight, u32 out_features,
                            u32 stride, const float *bias, float *out, u32 slice) {
  u32 expert = tiles[2 * blockIdx.y];
  if (expert == NONE) return;
  Product product = {x,
                     min(firsts[expert + 1], tiles[2 * blockIdx.y + 1] + 8),
                     weight + (size_t)expert * out_features * stride,
                     out_features,
                     stride,
                     bias ? bias + (size_t)expert * out_features : nullptr,
                     nullptr,
                     out_features,
                     out,
                     slice};
  multiply_few<1>(product, blockIdx.x * 16, tiles[2 * blockIdx.y + 1]);
}
#undef MAX_WARPS
#undef CHUNK
#undef CHUNKS_IN_FLIGHT
