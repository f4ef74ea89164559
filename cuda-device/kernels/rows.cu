// Operations that treat each value, or each row, on its own.
#include "common.cuh"

// out[i] = table[ids[i]] * scale; NaN where an id is not in the table. Grid: (rows).
DEVICE float widened(const float *values, size_t at) { return values[at]; }
DEVICE float widened(const u16 *values, size_t at) { return bf16_to_float(values[at]); }

template <class T>
DEVICE void embed_row(const T *__restrict__ table, u32 num_ids, u32 stride, const u32 *__restrict__ ids, float scale,
                      float *__restrict__ out, u32 width) {
  u32 id = ids[blockIdx.x];
  for (u32 i = threadIdx.x; i < width; i += blockDim.x)
    out[(size_t)blockIdx.x * width + i] = id < num_ids ? widened(table, (size_t)id * stride + i) * scale : not_a_number();
}

KERNEL(embed_f32)(const float *table, u32 num_ids, u32 stride, const u32 *ids, float scale, float *out, u32 width) {
  wait_for_previous();
  embed_row(table, num_ids, stride, ids, scale, out, width);
}

KERNEL(embed_bf16)(const u16 *table, u32 num_ids, u32 stride, const u32 *ids, float scale, float *out, u32 width) {
  wait_for_previous();
  embed_row(table, num_ids, stride, ids, scale, out, width);
}

// to[i] = from[indices[i]]; NaN where an index is not below `num_rows`. Grid: (rows, parts of the width).
KERNEL(gather_rows)(const float *__restrict__ from, u32 num_rows, const u32 *__restrict__ indices,
                    float *__restrict__ to, u32 width) {
  wait_for_previous();
  u32 row = indices[blockIdx.x];
  for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < width; i += gridDim.y * blockDim.x)
    to[(size_t)blockIdx.x * width + i] = row < num_rows ? from[(size_t)row * width + i] : not_a_number();
}

// Rows [rows, width] of f32 rounded to bfloat16 [rows, stride], zeros behind `width`. Grid: (parts of a row, rows).
KERNEL(round_rows)(const float *__restrict__ from, u32 width, u32 stride, u32 *__restrict__ to) {
  wait_for_previous();
  u32 pair = blockIdx.x * blockDim.x + threadIdx.x, i = 2 * pair;
  if (i >= stride) return;
  const float *row = from + (size_t)blockIdx.y * width;
  float low = i < width ? row[i] : 0.0f, high = i + 1 < width ? row[i + 1] : 0.0f;
  to[(size_t)blockIdx.y * (stride / 2) + pair] = pack_bf16(low, high);
}

// x / (1 + exp(-x))
DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }

// GELU by its approximation with tanh.
DEVICE float gelu_tanh(float x) {
  float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}

// out[r] = act(gate[r]) * up[r] of [gate | up] in a row of 2 * width. Grid: (parts of a row, rows).
KERNEL(act_and_mul)(const float *__restrict__ gate_up, float *__restrict__ out, u32 width, u32 is_gelu) {
  wait_for_previous();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const float *row = gate_up + (size_t)blockIdx.y * 2 * width;
  float gate = row[i], up = row[width + i];
  out[(size_t)blockIdx.y * width + i] = (is_gelu ? gelu_tanh(gate) : silu(gate)) * up;
}

// values = bound * tanh(values / bound). Grid: (parts).
KERNEL(softcap)(float *values, u64 count, float bound) {
  wait_for_previous();
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = bound * tanhf(values[i] / bound);
}
