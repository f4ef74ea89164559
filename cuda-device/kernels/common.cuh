// Names that every kernel may use: types, bfloat16, sums over a warp and a block, the tensor cores.
//
// The kernels are compiled by NVRTC without any header of CUDA, and as C++ by simulator.cpp, where simulator.h has
// provided CUDA's own names. Contraction is off in both: an `fma` happens where `multiply_add` is written, so that
// two kernels that share a chain of sums agree bit for bit.
#ifndef CUDA_DEVICE_COMMON
#define CUDA_DEVICE_COMMON

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef CUDA_DEVICE_SIMULATOR
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define DYNAMIC_SHARED(name) unsigned char *name = simulator::context.shared_memory
#else
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

#ifndef KERNEL
// Most threads of a block. A file whose kernels have fewer says so, and each may then use more registers.
#define KERNEL_THREADS 256
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(KERNEL_THREADS) name
#endif

#define FULL_WARP 0xffffffffu
#define WARP 32
// What a list on the device holds where it holds nothing.
#define NONE 0xffffffffu

DEVICE float negative_infinity() { return __uint_as_float(0xff800000u); }
DEVICE float not_a_number() { return __uint_as_float(0x7fc00000u); }

DEVICE bool is_nan_or_positive_infinity(float value) {
  u32 bits = __float_as_uint(value);
  return (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u;
}

DEVICE float bf16_to_float(u32 bits) { return __uint_as_float(bits << 16); }
DEVICE float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// To the nearest bfloat16, ties to even. A NaN stays one.
DEVICE u32 float_to_bf16(float value) {
  u32 bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

#ifdef CUDA_DEVICE_SIMULATOR
// Not fused: the processor of a simulator may lack the instruction.
DEVICE float multiply_add(float a, float b, float c) { return a * b + c; }
DEVICE u32 pack_bf16(float low, float high) { return float_to_bf16(low) | float_to_bf16(high) << 16; }
#else
DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE u32 pack_bf16(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// d[16, 8] += a[16, 16] * b[16, 8], by the fragment layout of the PTX manual.
DEVICE void mma_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 16 bytes from global to shared memory, in the background; zeros where `valid` is false.
DEVICE void copy_async(void *shared, const void *global, bool valid) {
  u32 to = (u32)__cvta_generic_to_shared(shared);
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes));
}
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;"); }
// Waits until at most `pending` of this thread's groups are under way.
template <int pending> DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }

// Four 8x8 matrices of 16 bits, transposed: lane i names row i % 8 of matrix i / 8 in shared memory and gets of each
// matrix rows 2 (i % 4) and 2 (i % 4) + 1 of column i / 4.
DEVICE void load_transposed(u32 (&values)[4], const void *row) {
  u32 address = (u32)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address)
               : "memory");
}

// Weights pass once: they needn't stay in the L1 cache.
DEVICE uint4 load_streamed(const uint4 *from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}
#endif

// 8 consecutive values, as bfloat16.
DEVICE uint4 load_activations(const u16 *x) { return *(const uint4 *)x; }
DEVICE uint4 load_activations(const float *x) {
  float4 low = *(const float4 *)x, high = *(const float4 *)(x + 4);
  return make_uint4(pack_bf16(low.x, low.y), pack_bf16(low.z, low.w), pack_bf16(high.x, high.y),
                    pack_bf16(high.z, high.w));
}

// Where a kernel's launch may overlap the end of the one before it (`Device::set_overlapping_launches`): waits until
// that one has ended and its results are there. Each kernel does so before it touches what another may write, and
// each of its blocks does, so that all before that one have ended too.
DEVICE void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The sum over a warp, the same in each lane.
DEVICE float warp_sum(float value) {
  for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(FULL_WARP, value, step);
  return value;
}

DEVICE float warp_max(float value) {
  for (int step = 16; step > 0; step >>= 1) value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, step));
  return value;
}

// The sum over a block of whole warps, the same in each thread. `room` holds 32 values and is free again at the
// block's next barrier.
DEVICE float block_sum(float value, float *room) {
  value = warp_sum(value);
  if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = value;
  __syncthreads();
  float sum = 0.0f;
  for (u32 warp = 0; warp < blockDim.x / WARP; warp++) sum += room[warp];
  return sum;
}

#endif
