// RMS norms. Each thread's sum and the order in which threads are added depend on the width alone.
#include "common.cuh"

// out = x / rms(x) * weight by row; `out` may be `x`. Grid: (rows).
KERNEL(rms_norm)(const float *x, const float *__restrict__ weight, float eps, float *out, u32 width) {
  wait_for_previous();
  __shared__ float room[32];
  const float *row = x + (size_t)blockIdx.x * width;
  float *to = out + (size_t)blockIdx.x * width;
  float squares = 0.0f;
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) squares = multiply_add(row[i], row[i], squares);
  float factor = 1.0f / sqrtf(block_sum(squares, room) / (float)width + eps);
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) to[i] = row[i] * factor * weight[i];
}

// residual += delta, then out = rms_norm(residual). Grid: (rows).
KERNEL(add_rms_norm)(float *__restrict__ residual, const float *__restrict__ delta, const float *__restrict__ weight,
                     float eps, float *__restrict__ out, u32 width) {
  wait_for_previous();
  __shared__ float room[32];
  size_t first = (size_t)blockIdx.x * width;
  float squares = 0.0f;
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
    float sum = residual[first + i] + delta[first + i];
    residual[first + i] = sum;
    squares = multiply_add(sum, sum, squares);
  }
  float factor = 1.0f / sqrtf(block_sum(squares, room) / (float)width + eps);
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) out[first + i] = residual[first + i] * factor * weight[i];
}
