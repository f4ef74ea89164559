// Grammar masks on the device, and the largest allowed logit of each row.
//
// Masks are bits [num_slots, words], one per token, in a pool; a row names a slot of it, or none by -1.
#include "common.cuh"

DEVICE bool is_allowed(const u32 *mask, u32 token) { return !mask || (mask[token / 32] >> (token % 32) & 1); }

// -inf where the row's mask has no bit, or no word. Grid: (parts of a row, rows).
KERNEL(mask_logits)(float *__restrict__ logits, u32 width, const u32 *__restrict__ pool, u32 num_slots, u32 words,
                    const int *__restrict__ slots) {
  wait_for_previous();
  u32 token = blockIdx.x * blockDim.x + threadIdx.x;
  int slot = slots[blockIdx.y];
  if (token >= width || slot < 0) return;
  bool allowed = (u32)slot < num_slots && token / 32 < words && is_allowed(pool + (size_t)slot * words, token);
  if (!allowed) logits[(size_t)blockIdx.y * width + token] = negative_infinity();
}

// The larger of two candidates, the lower token among equals; `broken` sticks.
struct Candidate {
  float logit;
  u32 token;
  u32 broken;
};

DEVICE Candidate larger(Candidate a, Candidate b) {
  bool other = b.logit > a.logit || (b.logit == a.logit && b.token < a.token);
  Candidate best = other ? b : a;
  best.broken = a.broken | b.broken;
  return best;
}

// The best of a block, valid in its first thread.
DEVICE Candidate block_best(Candidate best) {
  __shared__ Candidate of_warps[32];
  for (int step = 16; step > 0; step >>= 1) {
    Candidate other = {__shfl_xor_sync(FULL_WARP, best.logit, step), __shfl_xor_sync(FULL_WARP, best.token, step),
                       __shfl_xor_sync(FULL_WARP, best.broken, step)};
    best = larger(best, other);
  }
  if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = best;
  __syncthreads();
  for (u32 warp = 0; threadIdx.x == 0 && warp < blockDim.x / WARP; warp++) best = larger(best, of_warps[warp]);
  return best;
}

// The best of each part of a row among tokens below `num_tokens` that its mask allows. Grid: (parts, rows).
KERNEL(part_argmax)(const float *__restrict__ logits, u32 width, u32 num_tokens, const u32 *__restrict__ pool,
                    u32 num_slots, u32 words, const int *__restrict__ slots, u32 part_tokens,
                    Candidate *__restrict__ parts) {
  wait_for_previous();
  int slot = slots ? slots[blockIdx.y] : -1;
  bool known = slot < 0 || (u32)slot < num_slots;
  const u32 *mask = slot < 0 ? nullptr : pool + (size_t)slot * words;
  u32 first = blockIdx.x * part_tokens, last = min(first + part_tokens, num_tokens);
  Candidate best = {negative_infinity(), NONE, 0};
  for (u32 token = first + threadIdx.x; known && token < last; token += blockDim.x) {
    if (mask && (token / 32 >= words || !is_allowed(mask, token))) continue;
    float logit = logits[(size_t)blockIdx.y * width + token];
    best = larger(best, Candidate{logit, token, is_nan_or_positive_infinity(logit)});
  }
  best = block_best(best);
  if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = best;
}

// The best of a row's parts; -1 where all are -inf or one is NaN or +inf. Grid: (rows).
KERNEL(row_argmax)(const Candidate *__restrict__ parts, u32 num_parts, int *__restrict__ out) {
  wait_for_previous();
  Candidate best = {negative_infinity(), NONE, 0};
  for (u32 i = threadIdx.x; i < num_parts; i += blockDim.x) best = larger(best, parts[blockIdx.x * num_parts + i]);
  best = block_best(best);
  if (threadIdx.x == 0) out[blockIdx.x] = best.broken || best.logit == negative_infinity() ? -1 : (int)best.token;
}
