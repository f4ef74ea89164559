// Products with bfloat16 weights for few rows, on the tensor cores: bound by the memory that the weights come from.
//
// Chain of an output, the same in every kernel of bfloat16 weights: k is cut into slices whose length depends on the
// weight's shape alone. Within a slice an accumulator takes 32 k at a time, by two instructions of 16: one for those
// with k % 8 < 4, one for the others. (So a lane's operands are 16 consecutive bytes of a row.) The slices' sums are
// added in ascending order, then the bias.
#include "common.cuh"

#define MAX_WARPS 8
#define CHUNK 32
#define CHUNKS_IN_FLIGHT 8

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

// One slice of 16 outputs times 8 rows, into accumulators by the fragment's layout.
template <class X>
DEVICE void multiply_slice(const Product &product, const X *x, u32 first_output, u32 first_row, u32 slice,
                           float (&sums)[4]) {
  u32 lane = threadIdx.x % WARP, group = lane / 4, part = lane % 4 * 8;
  u32 from = slice * product.slice, until = min(from + product.slice, product.stride);
  u32 chunks = (until - from) / CHUNK;
  const u16 *low = product.weight + (size_t)weight_row(product, first_output + group) * product.stride + from + part;
  const u16 *high =
      product.weight + (size_t)weight_row(product, first_output + group + 8) * product.stride + from + part;
  bool has_row = first_row + group < product.rows;
  const X *row = x + (size_t)(has_row ? first_row + group : first_row) * product.stride + from + part;
  for (u32 chunk = 0; chunk < chunks; chunk += CHUNKS_IN_FLIGHT) {
    uint4 a[CHUNKS_IN_FLIGHT][2], b[CHUNKS_IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < CHUNKS_IN_FLIGHT; i++)
      if (chunk + i < chunks) {
        a[i][0] = load_streamed((const uint4 *)(low + (chunk + i) * CHUNK));
        a[i][1] = load_streamed((const uint4 *)(high + (chunk + i) * CHUNK));
      }
    // Weights are there before the activations are.
    if (chunk == 0) wait_for_previous();
#pragma unroll
    for (int i = 0; i < CHUNKS_IN_FLIGHT; i++) {
      b[i] = make_uint4(0, 0, 0, 0);
      if (has_row && chunk + i < chunks) b[i] = load_activations(row + (chunk + i) * CHUNK);
    }
#pragma unroll
    for (int i = 0; i < CHUNKS_IN_FLIGHT; i++) {
      if (chunk + i >= chunks) break;
      mma_bf16(sums, a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, b[i].x, b[i].y);
      mma_bf16(sums, a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, b[i].z, b[i].w);
    }
  }
}

// 16 outputs times 8 rows: each warp takes one slice of MAX_WARPS, until there are no more.
template <class X>
DEVICE void multiply_few(const Product &product, const X *x, u32 first_output, u32 first_row) {
  if (product.ids) wait_for_previous();
  const int ITEMS = 16 * 8;
  __shared__ float partial[MAX_WARPS][ITEMS];
  u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
  u32 slices = (product.stride + product.slice - 1) / product.slice;
  // Of a block of one warp each thread has 4 items, else fewer.
  float totals[ITEMS / WARP];
  for (u32 first = 0; first < slices; first += warps) {
    if (first + warp < slices) {
      float sums[4] = {};
      multiply_slice(product, x, first_output, first_row, first + warp, sums);
      for (u32 i = 0; i < 4; i++) {
        u32 output = lane / 4 + i / 2 * 8, row = lane % 4 * 2 + i % 2;
        partial[warp][row * 16 + output] = sums[i];
      }
    }
    __syncthreads();
    u32 here = min(warps, slices - first);
#pragma unroll
    for (int i = 0; i < ITEMS / WARP; i++) {
      u32 item = i * blockDim.x + threadIdx.x;
      if (item >= ITEMS) break;
      float total = first ? totals[i] : partial[0][item];
      for (u32 slice = first ? 0 : 1; slice < here; slice++) total += partial[slice][item];
      totals[i] = total;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < ITEMS / WARP; i++) {
    u32 item = i * blockDim.x + threadIdx.x, output = first_output + item % 16, row = first_row + item / 16;
    if (item >= ITEMS || output >= product.num_outputs || row >= product.rows) continue;
    u32 id = product.ids ? product.ids[output] : output;
    float value = not_a_number();
    if (id < product.out_features) value = product.bias ? totals[i] + product.bias[id] : totals[i];
    product.out[(size_t)row * product.num_outputs + output] = value;
  }
}

// Rows of x have been rounded. Grid: (outputs / 16, rows / 8).
KERNEL(linear_bf16_few)(const u16 *x, u32 rows, const u16 *weight, u32 out_features, u32 stride, const float *bias,
                        const u32 *ids, u32 num_outputs, float *out, u32 slice) {
  Product product = {x, rows, weight, out_features, stride, bias, ids, num_outputs, out, slice};
  multiply_few(product, x, blockIdx.x * 16, blockIdx.y * 8);
}

// Rows of x are f32 without gaps, and `stride` their width: there is no launch to round them.
KERNEL(linear_bf16_direct)(const float *x, u32 rows, const u16 *weight, u32 out_features, u32 stride, const float *bias,
                           const u32 *ids, u32 num_outputs, float *out, u32 slice) {
  Product product = {nullptr, rows, weight, out_features, stride, bias, ids, num_outputs, out, slice};
  multiply_few(product, x, blockIdx.x * 16, blockIdx.y * 8);
}

// Routed rows, as in linear_experts_f32. Grid: (outputs / 16, tiles of 8 rows).
KERNEL(linear_experts_bf16)(const u16 *x, const u32 *tiles, const u32 *firsts, const u16 *weight, u32 out_features,
                            u32 stride, const float *bias, float *out, u32 slice) {
  wait_for_previous();
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
  multiply_few(product, x, blockIdx.x * 16, tiles[2 * blockIdx.y + 1]);
}
#undef MAX_WARPS
#undef CHUNK
#undef CHUNKS_IN_FLIGHT
