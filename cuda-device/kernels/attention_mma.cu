// Paged causal attention on the tensor cores, of caches in bfloat16 whose heads have a multiple of 8 and at most 128
// dimensions. Queries, and the exponentials of scores, are rounded to bfloat16.
//
// Chain of an output: positions are cut into pieces of 64, at multiples of 64. A piece's scores, exponentials and sums
// are made by one warp; pieces are merged in ascending order (`merge` of attention.cu). Whether one warp takes all pieces
// or each piece has its own, and which other queries share a warp, makes no difference.
#include "common.cuh"

#define PIECE 64
#define QUERIES 16

// Shared memory of a piece: keys [chunk of 32 dimensions][position][32], as in linear_tiled.cu, and values
// [position][UNITS * 8], whose units of 8 dimensions are swizzled by the position for `load_transposed`.
template <int D> struct Piece {
  static const int UNITS = D > 64 ? 16 : 8, KEY_BYTES = PIECE * D * 2, VALUE_BYTES = PIECE * UNITS * 16;
  static const int BYTES = KEY_BYTES + VALUE_BYTES;
};

template <int D> DEVICE u32 key_offset(u32 position, u32 unit) {
  return (unit / 4 * PIECE + (position ^ (unit / 4 % 2))) * 64 + unit % 4 * 16;
}
template <int D> DEVICE u32 value_offset(u32 position, u32 unit) {
  return (position * Piece<D>::UNITS + (unit ^ (position % 8))) * 16;
}

// One warp copies `count` (at most 32) positions of a piece from `first` on; those outside `from..until` are zeros.
template <int D, bool IS_KEY>
DEVICE void copy_positions(const Pages<u16> &pages, u32 kv_head, u32 piece, u32 first, u32 count, u32 from, u32 until,
                           unsigned char *shared) {
  u32 lane = threadIdx.x % WARP, own = piece * PIECE + first + lane;
  bool is_own = lane < count && own >= from && own < until;
  // Rows of the cache, so that a lane's is found once.
  u32 row = is_own ? (u32)(page_offset(pages, kv_head, own) / pages.head_dim) : NONE;
  const u16 *cache = IS_KEY ? pages.keys : pages.values;
  for (u32 i = lane; i < count * Piece<D>::UNITS; i += WARP) {
    u32 position = i / Piece<D>::UNITS, unit = i % Piece<D>::UNITS;
    u32 at = __shfl_sync(FULL_WARP, row, position);
    if (unit >= D / 8) continue;
    bool valid = at != NONE && unit * 8 < pages.head_dim;
    const u16 *source = valid ? cache + (size_t)at * pages.head_dim + unit * 8 : cache;
    u32 offset = IS_KEY ? key_offset<D>(first + position, unit) : value_offset<D>(first + position, unit);
    copy_async(shared + offset, source, valid);
  }
}

// 16 queries as the tensor cores' first operand: of a lane, those of its two rows.
template <int D> struct Queries {
  u32 parts[D / 32][2][4];

  DEVICE_MEMBER void load(u32 which, const float *query, u32 head_dim) {
    u32 part = threadIdx.x % 4 * 8;
#pragma unroll
    for (int chunk = 0; chunk < D / 32; chunk++) {
      u32 at = chunk * 32 + part;
      uint4 loaded = query && at < head_dim ? load_activations(query + at) : make_uint4(0, 0, 0, 0);
      parts[chunk][which][0] = loaded.x;
      parts[chunk][which][1] = loaded.y;
      parts[chunk][which][2] = loaded.z;
      parts[chunk][which][3] = loaded.w;
    }
  }
};

// Positions that the two rows of a lane attend to, `starts..ends`.
struct Seen {
  u32 starts[2], ends[2];
};

struct ScoreRule {
  float scale, softcap;
};

// Exponentials of a piece's scores as the second product's first operand, with each row's largest score and sum.
struct Weights {
  u32 parts[PIECE / 16][4];
  Part rows[2];
};

template <int D>
DEVICE void piece_weights(const Queries<D> &queries, const unsigned char *keys, u32 piece, const Seen &seen,
                          ScoreRule rule, Weights &weights) {
  u32 lane = threadIdx.x % WARP, group = lane / 4, part = lane % 4;
  float scores[PIECE / 8][4] = {};
#pragma unroll
  for (int tile = 0; tile < PIECE / 8; tile++)
#pragma unroll
    for (int chunk = 0; chunk < D / 32; chunk++) {
      uint4 b = *(const uint4 *)(keys + key_offset<D>(tile * 8 + group, chunk * 4 + part));
      const u32(&a)[2][4] = queries.parts[chunk];
      mma_bf16(scores[tile], a[0][0], a[1][0], a[0][1], a[1][1], b.x, b.y);
      mma_bf16(scores[tile], a[0][2], a[1][2], a[0][3], a[1][3], b.z, b.w);
    }
  float largest[2] = {negative_infinity(), negative_infinity()};
#pragma unroll
  for (int tile = 0; tile < PIECE / 8; tile++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 position = piece * PIECE + tile * 8 + part * 2 + i % 2;
      float score = scores[tile][i] * rule.scale;
      if (rule.softcap > 0.0f) score = rule.softcap * tanhf(score / rule.softcap);
      bool is_seen = position >= seen.starts[i / 2] && position < seen.ends[i / 2];
      scores[tile][i] = is_seen ? score : negative_infinity();
      largest[i / 2] = fmaxf(largest[i / 2], scores[tile][i]);
    }
#pragma unroll
  for (int row = 0; row < 2; row++) {
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(FULL_WARP, largest[row], 1));
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(FULL_WARP, largest[row], 2));
    // Of a row that attends to none of them all weights are 0.
    float base = largest[row] == negative_infinity() ? 0.0f : largest[row], sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < PIECE / 8; tile++) {
      u32 pair = pack_bf16(expf(scores[tile][2 * row] - base), expf(scores[tile][2 * row + 1] - base));
      weights.parts[tile / 2][tile % 2 * 2 + row] = pair;
      sum += bf16_low(pair);
      sum += bf16_high(pair);
    }
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    sum += __shfl_xor_sync(FULL_WARP, sum, 2);
    weights.rows[row] = Part{largest[row], sum};
  }
}

// Weighted sums of 16 dimensions from `unit * 8` on, as two fragments.
template <int D>
DEVICE void piece_values(const Weights &weights, const unsigned char *values, u32 unit, float (&sums)[2][4]) {
  u32 lane = threadIdx.x % WARP;
#pragma unroll
  for (int step = 0; step < PIECE / 16; step++) {
    u32 position = step * 16 + lane / 8 % 2 * 8 + lane % 8, b[4];
    load_transposed(b, values + value_offset<D>(position, unit + lane / 16));
    const u32(&a)[4] = weights.parts[step];
    mma_bf16(sums[0], a[0], a[1], a[2], a[3], b[0], b[1]);
    mma_bf16(sums[1], a[0], a[1], a[2], a[3], b[2], b[3]);
  }
}

DEVICE u32 first_seen(u32 position, u32 window) { return window && position + 1 > window ? position + 1 - window : 0; }

// Each warp takes one piece of one row, for up to 16 heads that share a key head, and leaves its sums in `partial`.
// Grid: (pieces / warps, num_kv_heads * ceil(group / 16), rows).
template <int D>
DEVICE void attend_pieces(const float *__restrict__ qkv, u32 num_heads, Pages<u16> pages, const Rows &rows,
                          ScoreRule rule, u32 window, u32 num_pieces, float *__restrict__ partial,
                          Part *__restrict__ partial_sums) {
  DYNAMIC_SHARED(shared);
  u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.z;
  u32 index = blockIdx.x * (blockDim.x / WARP) + warp;
  u32 all_group = num_heads / pages.num_kv_heads, tiles = (all_group + QUERIES - 1) / QUERIES;
  u32 kv_head = blockIdx.y / tiles, first_head = kv_head * all_group + blockIdx.y % tiles * QUERIES;
  u32 group = min(all_group - blockIdx.y % tiles * QUERIES, (u32)QUERIES), dim = pages.head_dim;
  u32 position = rows.positions[row], request = rows.requests[row], start = first_seen(position, window);
  u32 piece = start / PIECE + index;
  if (index >= num_pieces || piece > position / PIECE) return;
  pages.table = rows.block_tables + (size_t)(request < rows.num_requests ? request : 0) * rows.table_stride;
  pages.num_table = rows.table_stride;

  unsigned char *keys = shared + warp * Piece<D>::BYTES, *values = keys + Piece<D>::KEY_BYTES;
  for (u32 first = 0; first < PIECE; first += WARP)
    copy_positions<D, true>(pages, kv_head, piece, first, WARP, start, position + 1, keys);
  copy_async_commit();
  for (u32 first = 0; first < PIECE; first += WARP)
    copy_positions<D, false>(pages, kv_head, piece, first, WARP, start, position + 1, values);
  copy_async_commit();

  size_t width = (size_t)(num_heads + 2 * pages.num_kv_heads) * dim;
  Queries<D> queries;
  Seen seen;
#pragma unroll
  for (u32 which = 0; which < 2; which++) {
    u32 head = lane / 4 + which * 8;
    queries.load(which, head < group ? qkv + row * width + (size_t)(first_head + head) * dim : nullptr, dim);
    seen.starts[which] = start;
    seen.ends[which] = position + 1;
  }
  Weights weights;
  copy_async_wait<1>();
  __syncwarp();
  piece_weights<D>(queries, keys, piece, seen, rule, weights);
  copy_async_wait<0>();
  __syncwarp();
#pragma unroll
  for (u32 unit = 0; unit < D / 8; unit += 2) {
    float sums[2][4] = {};
    piece_values<D>(weights, values, unit, sums);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      u32 head = lane / 4 + i % 4 / 2 * 8, at = (unit + i / 4) * 8 + lane % 4 * 2 + i % 2;
      if (head < group && at < dim)
        partial[(((size_t)row * num_heads + first_head + head) * num_pieces + index) * dim + at] = sums[i / 4][i % 4];
    }
  }
#pragma unroll
  for (u32 which = 0; which < 2; which++) {
    u32 head = lane / 4 + which * 8;
    if (head < group && lane % 4 == 0)
      partial_sums[((size_t)row * num_heads + first_head + head) * num_pieces + index] = weights.rows[which];
  }
}

#define TILE_WARPS 4
#define TILE_QUERIES (TILE_WARPS * QUERIES)

// A block takes the queries of consecutive rows, as many as there are places for with all heads of a key head, and
// walks the pieces of each request that they are of. Grid: (tiles of rows, num_kv_heads * ceil(group / 16)).
template <int D>
DEVICE void attend_rows(const float *__restrict__ qkv, u32 num_rows, u32 num_heads, Pages<u16> pages, const Rows &rows,
                        ScoreRule rule, u32 window, float *__restrict__ out) {
  DYNAMIC_SHARED(shared);
  unsigned char *keys = shared, *values = shared + Piece<D>::KEY_BYTES;
  u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, dim = pages.head_dim;
  u32 all_group = num_heads / pages.num_kv_heads, tiles = (all_group + QUERIES - 1) / QUERIES;
  u32 kv_head = blockIdx.y / tiles, first_head = kv_head * all_group + blockIdx.y % tiles * QUERIES;
  u32 group = min(all_group - blockIdx.y % tiles * QUERIES, (u32)QUERIES), tile_rows = TILE_QUERIES / group;
  u32 first_row = blockIdx.x * tile_rows, end_row = min(first_row + tile_rows, num_rows);
  size_t width = (size_t)(num_heads + 2 * pages.num_kv_heads) * dim;

  // The row and head of each of a lane's two queries.
  u32 own_rows[2], own_heads[2];
  Queries<D> queries;
#pragma unroll
  for (u32 which = 0; which < 2; which++) {
    u32 place = warp * QUERIES + lane / 4 + which * 8, row = first_row + place / group;
    bool is_query = place < tile_rows * group && row < end_row;
    own_rows[which] = is_query ? row : NONE;
    own_heads[which] = first_head + place % group;
    queries.load(which, is_query ? qkv + row * width + (size_t)own_heads[which] * dim : nullptr, dim);
  }
  Part merged[2] = {{negative_infinity(), 0.0f}, {negative_infinity(), 0.0f}};
  float results[D / 8][4] = {};

  for (u32 run = first_row; run < end_row;) {
    // Consecutive rows of one request.
    u32 request = rows.requests[run], run_end = run, start = NONE, end = 0;
    for (; run_end < end_row && rows.requests[run_end] == request; run_end++) {
      u32 position = rows.positions[run_end];
      start = min(start, first_seen(position, window));
      end = max(end, position + 1);
    }
    pages.table = rows.block_tables + (size_t)(request < rows.num_requests ? request : 0) * rows.table_stride;
    pages.num_table = rows.table_stride;
    Seen seen;
#pragma unroll
    for (u32 which = 0; which < 2; which++) {
      bool is_in = own_rows[which] >= run && own_rows[which] < run_end;
      u32 position = is_in ? rows.positions[own_rows[which]] : 0;
      seen.starts[which] = is_in ? first_seen(position, window) : 0;
      seen.ends[which] = is_in ? position + 1 : 0;
    }
    for (u32 piece = start / PIECE; piece * PIECE < end; piece++) {
      __syncthreads();
      u32 first = warp * (PIECE / TILE_WARPS);
      copy_positions<D, true>(pages, kv_head, piece, first, PIECE / TILE_WARPS, start, end, keys);
      copy_async_commit();
      copy_positions<D, false>(pages, kv_head, piece, first, PIECE / TILE_WARPS, start, end, values);
      copy_async_commit();
      bool is_seen = false;
      for (u32 which = 0; which < 2; which++)
        is_seen |= seen.starts[which] < (piece + 1) * PIECE && seen.ends[which] > piece * PIECE;
      is_seen = __ballot_sync(FULL_WARP, is_seen) != 0;
      Weights weights;
      copy_async_wait<1>();
      __syncthreads();
      if (is_seen) piece_weights<D>(queries, keys, piece, seen, rule, weights);
      copy_async_wait<0>();
      __syncthreads();
      if (!is_seen) continue;
      float before[2], now[2];
      bool is_merged[2];
#pragma unroll
      for (u32 which = 0; which < 2; which++) {
        Part part = weights.rows[which];
        is_merged[which] = part.largest != negative_infinity();
        float largest = fmaxf(merged[which].largest, part.largest);
        before[which] = expf(merged[which].largest - largest);
        now[which] = expf(part.largest - largest);
        if (is_merged[which])
          merged[which] = Part{largest, multiply_add(part.sum, now[which], merged[which].sum * before[which])};
      }
#pragma unroll
      for (u32 unit = 0; unit < D / 8; unit += 2) {
        float sums[2][4] = {};
        piece_values<D>(weights, values, unit, sums);
#pragma unroll
        for (int i = 0; i < 8; i++) {
          float &result = results[unit + i / 4][i % 4];
          u32 which = i % 4 / 2;
          if (is_merged[which]) result = multiply_add(sums[i / 4][i % 4], now[which], result * before[which]);
        }
      }
    }
    run = run_end;
  }
#pragma unroll
  for (u32 unit = 0; unit < D / 8; unit++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 which = i / 2, at = unit * 8 + lane % 4 * 2 + i % 2;
      if (own_rows[which] != NONE && at < dim)
        out[((size_t)own_rows[which] * num_heads + own_heads[which]) * dim + at] =
            results[unit][i] / merged[which].sum;
    }
}

#define PIECES_KERNEL(D)                                                                                               \
  (const float *qkv, u32 num_heads, const u16 *keys, const u16 *values, u32 num_blocks, u32 num_kv_heads,              \
   u32 block_size, u32 head_dim, const u32 *positions, const u32 *requests, const u32 *block_tables, u32 num_requests, \
   u32 table_stride, float scale, float softcap, u32 window, u32 num_pieces, float *partial, Part *partial_sums) {     \
    wait_for_previous();                                                                                               \
    Pages<u16> pages = {keys, values, num_blocks, num_kv_heads, block_size, head_dim, nullptr, 0};                     \
    Rows rows = {positions, requests, block_tables, num_requests, table_stride};                                       \
    attend_pieces<D>(qkv, num_heads, pages, rows, ScoreRule{scale, softcap}, window, num_pieces, partial,              \
                     partial_sums);                                                                                    \
  }

#define ROWS_KERNEL(D)                                                                                                 \
  (const float *qkv, u32 num_heads, const u16 *keys, const u16 *values, u32 num_blocks, u32 num_kv_heads,              \
   u32 block_size, u32 head_dim, const u32 *positions, const u32 *requests, const u32 *block_tables, u32 num_requests, \
   u32 table_stride, float scale, float softcap, u32 window, u32 num_rows, float *out) {                               \
    wait_for_previous();                                                                                               \
    Pages<u16> pages = {keys, values, num_blocks, num_kv_heads, block_size, head_dim, nullptr, 0};                     \
    Rows rows = {positions, requests, block_tables, num_requests, table_stride};                                       \
    attend_rows<D>(qkv, num_rows, num_heads, pages, rows, ScoreRule{scale, softcap}, window, out);                     \
  }

#undef KERNEL_THREADS
#define KERNEL_THREADS 128, 1
// By the head's dimensions, rounded up.
KERNEL(attention_pieces_64) PIECES_KERNEL(64)
KERNEL(attention_pieces_96) PIECES_KERNEL(96)
KERNEL(attention_pieces_128) PIECES_KERNEL(128)
KERNEL(attention_rows_64) ROWS_KERNEL(64)
KERNEL(attention_rows_96) ROWS_KERNEL(96)
KERNEL(attention_rows_128) ROWS_KERNEL(128)
#undef KERNEL_THREADS
#define KERNEL_THREADS 256
