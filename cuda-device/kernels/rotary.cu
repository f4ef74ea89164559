// Norms of heads, rotary position embedding and the write to the paged cache, one warp per row and head.
#include "common.cuh"

#define MAX_HEAD_DIM 256
#define HEADS_PER_BLOCK 4

DEVICE void store(float *values, size_t at, float value) { values[at] = value; }
DEVICE void store(u16 *values, size_t at, float value) { values[at] = (u16)float_to_bf16(value); }

// Pair i of a head is (i, i + half); dimensions from 2 * half on stay as they are.
DEVICE float rotated(const float *head, u32 i, u32 half, const float *cosines, const float *sines) {
  if (i < half) return head[i] * cosines[i] - head[i + half] * sines[i];
  if (i < 2 * half) return head[i] * cosines[i - half] + head[i - half] * sines[i - half];
  return head[i];
}

// One head of one row, in the order: norm (where it has a weight), rotation (where `cosines`), cache (where `keys`).
// The heads of a row are [queries | keys | values].
template <class T>
DEVICE void head_step(float *qkv, u32 rows, u32 num_heads, u32 num_kv_heads, u32 head_dim, const float *q_weight,
                      const float *k_weight, float eps, const float *cosines, const float *sines, u32 half,
                      u32 max_positions, const u32 *positions, const u32 *slots, T *keys, T *values, u32 block_size,
                      u32 num_slots) {
  __shared__ float heads[HEADS_PER_BLOCK][MAX_HEAD_DIM];
  u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  u32 all_heads = num_heads + 2 * num_kv_heads, item = blockIdx.x * HEADS_PER_BLOCK + warp;
  u32 row = item / all_heads, head = item % all_heads;
  if (row >= rows) return;
  bool is_query = head < num_heads, is_value = head >= num_heads + num_kv_heads;
  float *own = qkv + ((size_t)row * all_heads + head) * head_dim;
  float *room = heads[warp];

  const float *weight = is_value ? nullptr : is_query ? q_weight : k_weight;
  float factor = 1.0f;
  if (weight) {
    float squares = 0.0f;
    for (u32 i = lane; i < head_dim; i += WARP) squares = multiply_add(own[i], own[i], squares);
    factor = 1.0f / sqrtf(warp_sum(squares) / (float)head_dim + eps);
  }
  for (u32 i = lane; i < head_dim; i += WARP) room[i] = weight ? own[i] * factor * weight[i] : own[i];
  __syncwarp();

  bool rotate = cosines && !is_value;
  u32 position = rotate ? positions[row] : 0;
  bool known = position < max_positions;
  const float *cos_row = cosines + (size_t)position * half, *sin_row = sines + (size_t)position * half;
  u32 slot = keys && !is_query ? slots[row] : NONE;
  u32 kv_head = is_value ? head - num_heads - num_kv_heads : head - num_heads;
  size_t to = ((size_t)(slot / block_size) * num_kv_heads + kv_head) * block_size + slot % block_size;
  for (u32 i = lane; i < head_dim; i += WARP) {
    float value = !rotate ? room[i] : known ? rotated(room, i, half, cos_row, sin_row) : not_a_number();
    if (rotate || weight) own[i] = value;
    if (slot < num_slots) store(is_value ? values : keys, to * head_dim + i, value);
  }
}

KERNEL(head_step_f32)(float *qkv, u32 rows, u32 num_heads, u32 num_kv_heads, u32 head_dim, const float *q_weight,
                      const float *k_weight, float eps, const float *cosines, const float *sines, u32 half,
                      u32 max_positions, const u32 *positions, const u32 *slots, float *keys, float *values,
                      u32 block_size, u32 num_slots) {
  wait_for_previous();
  head_step(qkv, rows, num_heads, num_kv_heads, head_dim, q_weight, k_weight, eps, cosines, sines, half, max_positions,
            positions, slots, keys, values, block_size, num_slots);
}

KERNEL(head_step_bf16)(float *qkv, u32 rows, u32 num_heads, u32 num_kv_heads, u32 head_dim, const float *q_weight,
                       const float *k_weight, float eps, const float *cosines, const float *sines, u32 half,
                       u32 max_positions, const u32 *positions, const u32 *slots, u16 *keys, u16 *values,
                       u32 block_size, u32 num_slots) {
  wait_for_previous();
  head_step(qkv, rows, num_heads, num_kv_heads, head_dim, q_weight, k_weight, eps, cosines, sines, half, max_positions,
            positions, slots, keys, values, block_size, num_slots);
}
