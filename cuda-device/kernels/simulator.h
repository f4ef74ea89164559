// CUDA C as C++: each thread of a block is a fiber, and the blocks run one after the other.
//
// Barriers, shuffles and tensor-core instructions are where a fiber yields until its block or warp has come there.
// Between them a fiber runs alone, so that a missing barrier shows as wrong results in some order of the threads.
// Shared memory is full of NaNs when a block starts.
#ifndef CUDA_DEVICE_SIMULATOR_H
#define CUDA_DEVICE_SIMULATOR_H
#define CUDA_DEVICE_SIMULATOR

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

#define __global__ static
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static thread_local
#define __align__(n) alignas(n)
#define __launch_bounds__(...)

namespace simulator {

constexpr unsigned MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32;
#ifdef __SANITIZE_ADDRESS__
constexpr size_t STACK_BYTES = 256 << 10;
#else
constexpr size_t STACK_BYTES = 48 << 10;
#endif
// Stacks a power of two apart would all compete for the same lines of the cache.
constexpr size_t STACK_STRIDE = STACK_BYTES + 192;
constexpr uint64_t CANARY = 0x5157a2c4e3b1f607ull;

enum class State : unsigned char { Ready, AtBarrier, AtCollective, Done };
enum Collective : unsigned char { SyncWarp, Shuffle, Ballot, Mma, LoadMatrix };

struct PendingCopy {
  void *to;
  const void *from;
  bool valid;
  unsigned group;
};

struct Fiber {
  void *stack_pointer;
  uint3 thread;
  unsigned linear;
  State state;
  Collective collective;
  // Which of a warp's two rooms its next collective uses.
  unsigned room;
  unsigned groups_committed;
  std::vector<PendingCopy> copies;
};

// What the lanes of a warp hand to each other. A lane can be at most one collective ahead of another, so two rooms
// are enough.
struct Exchange {
  alignas(16) unsigned char lanes[2][32][48];
};

struct Context {
  uint3 thread, block, block_dim, grid_dim;
  Fiber *current;
  void *scheduler_stack_pointer;
  unsigned char *shared_memory;
  void (*kernel)(void **);
  void **arguments;
};
inline thread_local Context context;
inline thread_local Exchange exchanges[MAX_WARPS];

extern "C" void simulator_switch(void **from, void *to);

inline void yield(State state, Collective collective) {
  Fiber *fiber = context.current;
  fiber->state = state;
  fiber->collective = collective;
  simulator_switch(&fiber->stack_pointer, context.scheduler_stack_pointer);
}

inline unsigned lane() { return context.current->linear % 32; }
inline unsigned char *slot(unsigned lane, unsigned room) {
  return exchanges[context.current->linear / 32].lanes[room][lane];
}

// Each lane puts a value; all of them come here; each lane may then read the others' in the room returned.
template <class T> unsigned meet(const T &value, Collective collective) {
  static_assert(sizeof(T) <= 48);
  unsigned room = context.current->room;
  context.current->room ^= 1;
  memcpy(slot(lane(), room), &value, sizeof value);
  yield(State::AtCollective, collective);
  return room;
}
template <class T> T read(unsigned from, unsigned room) {
  T value;
  memcpy(&value, slot(from % 32, room), sizeof value);
  return value;
}

struct Fragments {
  float d[4];
  unsigned a[4], b[2];
};

} // namespace simulator

#define threadIdx simulator::context.thread
#define blockIdx simulator::context.block
#define blockDim simulator::context.block_dim
#define gridDim simulator::context.grid_dim

inline void simulator_barrier() { simulator::yield(simulator::State::AtBarrier, simulator::SyncWarp); }
#define __syncthreads() simulator_barrier()
inline void __syncwarp(unsigned = ~0u) { simulator::meet(0, simulator::SyncWarp); }
template <class T> T __shfl_sync(unsigned, T value, int from) {
  return simulator::read<T>(from, simulator::meet(value, simulator::Shuffle));
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
  return simulator::read<T>(simulator::lane() ^ mask, simulator::meet(value, simulator::Shuffle));
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned by) {
  unsigned lane = simulator::lane();
  return simulator::read<T>(lane < by ? lane : lane - by, simulator::meet(value, simulator::Shuffle));
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  unsigned room = simulator::meet(predicate, simulator::Ballot), bits = 0;
  for (unsigned lane = 0; lane < 32; lane++) bits |= unsigned(simulator::read<int>(lane, room) != 0) << lane;
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned *to, unsigned value) {
  unsigned before = *to;
  *to += value;
  return before;
}
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

inline uint4 load_streamed(const uint4 *from) { return *from; }

// Multiplied when the warp's last lane has come: see `multiply_fragments` in simulator.cpp.
inline void mma_bf16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  simulator::Fragments mine{{d[0], d[1], d[2], d[3]}, {a0, a1, a2, a3}, {b0, b1}};
  unsigned room = simulator::meet(mine, simulator::Mma);
  memcpy(d, simulator::slot(simulator::lane(), room), sizeof d);
}

// Four 8x8 matrices of 16 bits, transposed; each lane names a row.
inline void load_transposed(unsigned (&values)[4], const void *row) {
  unsigned room = simulator::meet(row, simulator::LoadMatrix), lane = simulator::lane();
  for (unsigned matrix = 0; matrix < 4; matrix++) {
    unsigned short pair[2];
    for (unsigned i = 0; i < 2; i++) {
      auto from = simulator::read<const unsigned short *>(matrix * 8 + lane % 4 * 2 + i, room);
      pair[i] = from[lane / 4];
    }
    values[matrix] = pair[0] | unsigned(pair[1]) << 16;
  }
}

// Nothing arrives before it is waited for, so that a missing wait shows.
inline void copy_async(void *shared, const void *global, bool valid) {
  simulator::Fiber *fiber = simulator::context.current;
  fiber->copies.push_back({shared, global, valid, fiber->groups_committed});
}
inline void copy_async_commit() { simulator::context.current->groups_committed++; }
template <int pending> void copy_async_wait() {
  simulator::Fiber *fiber = simulator::context.current;
  size_t kept = 0;
  for (const simulator::PendingCopy &copy : fiber->copies) {
    if (copy.group + pending >= fiber->groups_committed) {
      fiber->copies[kept++] = copy;
    } else if (copy.valid) {
      memcpy(copy.to, copy.from, 16);
    } else {
      memset(copy.to, 0, 16);
    }
  }
  fiber->copies.resize(kept);
}
#endif
