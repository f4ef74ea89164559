// Paged causal attention on the plain units: of caches in f32, and of those in bfloat16 whose heads the tensor cores
// don't take (attention_mma.cu).
//
// Chain of an output: positions are cut into parts of 256, at multiples of 256. Within a part the scores' exponentials,
// relative to the part's largest score, are summed; the parts are merged in ascending order. Which positions
// a row attends to depends on its own position and the window alone.
#include "common.cuh"

#define PART 256
#define MAX_GROUP 8
#define MAX_DIM 256

// Pages and what is attended to.
template <class T> struct Pages {
  const T *keys, *values; // [num_blocks, num_kv_heads, block_size, head_dim]
  u32 num_blocks, num_kv_heads, block_size, head_dim;
  const u32 *table; // [blocks] of the row's request
  u32 num_table;
};

// The offset of a position's key or value; a block that doesn't exist is read as block 0.
template <class T> DEVICE size_t page_offset(const Pages<T> &pages, u32 kv_head, u32 position) {
  u32 at = position / pages.block_size, block = at < pages.num_table ? pages.table[at] : 0;
  if (block >= pages.num_blocks) block = 0;
  size_t slot = ((size_t)block * pages.num_kv_heads + kv_head) * pages.block_size + position % pages.block_size;
  return slot * pages.head_dim;
}

DEVICE float cache_value(const float *values, size_t at) { return values[at]; }
DEVICE float cache_value(const u16 *values, size_t at) { return bf16_to_float(values[at]); }

// A part's sums, of each query head of the group.
struct Part {
  float largest, sum;
};

// Positions `first..last` of one part for the queries in shared memory [group, head_dim]. On return `results` holds
// each head's largest score and sum, and `acc` the sums of values of dimension threadIdx.x. PART threads.
template <class T>
DEVICE void attend_part(const Pages<T> &pages, u32 kv_head, u32 group, const float *queries, u32 first, u32 last,
                        float scale, float softcap, float (*scores)[PART], Part *results, float *acc) {
  u32 thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP, dim = pages.head_dim;
  u32 position = first / PART * PART + thread;
  bool is_seen = position >= first && position < last;
  float dots[MAX_GROUP] = {};
  if (is_seen) {
    const T *key = pages.keys + page_offset(pages, kv_head, position);
    for (u32 i = 0; i < dim; i++) {
      float value = cache_value(key, i);
#pragma unroll
      for (u32 head = 0; head < MAX_GROUP; head++)
        if (head < group) dots[head] = multiply_add(queries[head * dim + i], value, dots[head]);
    }
  }
#pragma unroll
  for (u32 head = 0; head < MAX_GROUP; head++)
    if (head < group) {
      float score = dots[head] * scale;
      if (softcap > 0.0f) score = softcap * tanhf(score / softcap);
      scores[head][thread] = is_seen ? score : negative_infinity();
    }
  __syncthreads();
  for (u32 head = warp; head < group; head += PART / WARP) {
    float largest = negative_infinity(), sum = 0.0f;
    for (u32 i = lane; i < PART; i += WARP) largest = fmaxf(largest, scores[head][i]);
    largest = warp_max(largest);
    for (u32 i = lane; i < PART; i += WARP) {
      float weight = expf(scores[head][i] - largest);
      scores[head][i] = weight;
      sum += weight;
    }
    sum = warp_sum(sum);
    if (lane == 0) results[head] = Part{largest, sum};
  }
  __syncthreads();
#pragma unroll
  for (u32 head = 0; head < MAX_GROUP; head++) acc[head] = 0.0f;
  if (thread < dim)
    for (u32 at = first; at < last; at++) {
      float value = cache_value(pages.values, page_offset(pages, kv_head, at) + thread);
#pragma unroll
      for (u32 head = 0; head < MAX_GROUP; head++)
        if (head < group) acc[head] = multiply_add(scores[head][at % PART], value, acc[head]);
    }
}

// What has been merged so far: largest score, sum of exponentials, one dimension of the sum of values.
struct Merged {
  float largest, sum, value;
};

DEVICE Merged merge(Merged so_far, Part part, float value) {
  float largest = fmaxf(so_far.largest, part.largest);
  float before = expf(so_far.largest - largest), now = expf(part.largest - largest);
  return Merged{largest, multiply_add(part.sum, now, so_far.sum * before),
                multiply_add(value, now, so_far.value * before)};
}

DEVICE Merged nothing() { return Merged{negative_infinity(), 0.0f, 0.0f}; }

// Where a row stands. Grid of the kernels below: (parts or 1, num_kv_heads * ceil(group / MAX_GROUP), rows), PART
// threads.
struct Rows {
  const u32 *positions, *requests; // [rows]
  const u32 *block_tables;         // [num_requests, table_stride]
  u32 num_requests, table_stride;
};

template <class T>
DEVICE void paged_attention(const float *__restrict__ qkv, u32 num_heads, Pages<T> pages, Rows rows, float scale,
                            float softcap, u32 window, u32 num_parts, float *__restrict__ partial,
                            Part *__restrict__ partial_sums, float *__restrict__ out) {
  __shared__ float scores[MAX_GROUP][PART];
  __shared__ float queries[MAX_GROUP * MAX_DIM];
  __shared__ Part results[MAX_GROUP];
  u32 row = blockIdx.z, dim = pages.head_dim, all_group = num_heads / pages.num_kv_heads;
  u32 tiles = (all_group + MAX_GROUP - 1) / MAX_GROUP, kv_head = blockIdx.y / tiles, tile = blockIdx.y % tiles;
  u32 group = min(all_group - tile * MAX_GROUP, (u32)MAX_GROUP);
  u32 position = rows.positions[row], request = rows.requests[row];
  if (request >= rows.num_requests) request = 0;
  pages.table = rows.block_tables + (size_t)request * rows.table_stride;
  pages.num_table = rows.table_stride;
  u32 start = window && position + 1 > window ? position + 1 - window : 0;
  u32 first_part = start / PART, last_part = position / PART;
  bool is_split = num_parts > 1;
  if (is_split) {
    first_part += blockIdx.x;
    if (first_part > last_part) return;
    last_part = first_part;
  }

  size_t width = (size_t)(num_heads + 2 * pages.num_kv_heads) * dim, first_head = (size_t)kv_head * all_group + tile * MAX_GROUP;
  for (u32 i = threadIdx.x; i < group * dim; i += PART) queries[i] = qkv[row * width + first_head * dim + i];
  Merged merged[MAX_GROUP];
#pragma unroll
  for (u32 head = 0; head < MAX_GROUP; head++) merged[head] = nothing();
  float acc[MAX_GROUP];
  for (u32 part = first_part; part <= last_part; part++) {
    __syncthreads();
    attend_part(pages, kv_head, group, queries, max(start, part * PART), min(position + 1, (part + 1) * PART), scale,
                softcap, scores, results, acc);
#pragma unroll
    for (u32 head = 0; head < MAX_GROUP; head++)
      if (head < group && !is_split) merged[head] = merge(merged[head], results[head], acc[head]);
  }
#pragma unroll
  for (u32 head = 0; head < MAX_GROUP; head++) {
    if (head >= group) break;
    size_t of = (size_t)row * num_heads + first_head + head;
    if (!is_split) {
      if (threadIdx.x < dim) out[of * dim + threadIdx.x] = merged[head].value / merged[head].sum;
      continue;
    }
    size_t at = of * num_parts + blockIdx.x;
    if (threadIdx.x < dim) partial[at * dim + threadIdx.x] = acc[head];
    if (threadIdx.x == 0) partial_sums[at] = results[head];
  }
}

#undef KERNEL_THREADS
#define KERNEL_THREADS PART, 1
KERNEL(paged_attention_f32)(const float *qkv, u32 num_heads, const float *keys, const float *values, u32 num_blocks,
                            u32 num_kv_heads, u32 block_size, u32 head_dim, const u32 *positions, const u32 *requests,
                            const u32 *block_tables, u32 num_requests, u32 table_stride, float scale, float softcap,
                            u32 window, u32 num_parts, float *partial, Part *partial_sums, float *out) {
  wait_for_previous();
  Pages<float> pages = {keys, values, num_blocks, num_kv_heads, block_size, head_dim, nullptr, 0};
  Rows rows = {positions, requests, block_tables, num_requests, table_stride};
  paged_attention(qkv, num_heads, pages, rows, scale, softcap, window, num_parts, partial, partial_sums, out);
}

KERNEL(paged_attention_bf16)(const float *qkv, u32 num_heads, const u16 *keys, const u16 *values, u32 num_blocks,
                             u32 num_kv_heads, u32 block_size, u32 head_dim, const u32 *positions, const u32 *requests,
                             const u32 *block_tables, u32 num_requests, u32 table_stride, float scale, float softcap,
                             u32 window, u32 num_parts, float *partial, Part *partial_sums, float *out) {
  wait_for_previous();
  Pages<u16> pages = {keys, values, num_blocks, num_kv_heads, block_size, head_dim, nullptr, 0};
  Rows rows = {positions, requests, block_tables, num_requests, table_stride};
  paged_attention(qkv, num_heads, pages, rows, scale, softcap, window, num_parts, partial, partial_sums, out);
}

// Merges what the parts of a row's head, of `part_len` positions each, have left. Grid: (num_heads, rows), at least
// head_dim threads.
KERNEL(merge_parts)(const float *__restrict__ partial, const Part *__restrict__ partial_sums,
                    const u32 *__restrict__ positions, u32 window, u32 part_len, u32 num_parts, u32 dim,
                    float *__restrict__ out) {
  wait_for_previous();
  u32 position = positions[blockIdx.y], start = window && position + 1 > window ? position + 1 - window : 0;
  u32 parts = min(position / part_len - start / part_len + 1, num_parts);
  size_t of = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
  if (threadIdx.x >= dim) return;
  Merged merged = nothing();
  for (u32 part = 0; part < parts; part++) {
    size_t at = of * num_parts + part;
    merged = merge(merged, partial_sums[at], partial[at * dim + threadIdx.x]);
  }
  out[of * dim + threadIdx.x] = merged.value / merged.sum;
}
#undef PART
#undef MAX_GROUP
#undef MAX_DIM
#undef KERNEL_THREADS
#define KERNEL_THREADS 256
