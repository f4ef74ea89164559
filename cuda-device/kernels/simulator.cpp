// Runs the kernels, twice compiled: as they are, and without their barriers, which the tests must notice.
#include "simulator.h"

#include <utility>

namespace simulator {

asm(R"(
.text
.globl simulator_switch
.hidden simulator_switch
.type simulator_switch, @function
simulator_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size simulator_switch, .-simulator_switch
)");

static void fiber_main() {
  context.kernel(context.arguments);
  yield(State::Done, SyncWarp);
  abort(); // Nobody switches to a fiber that is done.
}

static float widen(unsigned bits) { return __uint_as_float(bits << 16); }

// d = a * b + d for one warp. A product of two bfloat16 is exact in f64; the 16 of them are summed in f64 in
// ascending order, the accumulator is added last, and the sum is rounded once to f32. A device truncates
// instead, after alignment to the largest summand: its last bits differ.
static void multiply_fragments(Exchange &exchange, unsigned room) {
  double a[16][16], b[16][8];
  Fragments fragments[32];
  for (unsigned lane = 0; lane < 32; lane++) {
    Fragments &own = fragments[lane];
    memcpy(&own, exchange.lanes[room][lane], sizeof own);
    unsigned group = lane / 4, pair = lane % 4 * 2;
    for (unsigned part = 0; part < 4; part++) {
      unsigned row = group + part % 2 * 8, k = pair + part / 2 * 8;
      a[row][k] = widen(own.a[part] & 0xffff);
      a[row][k + 1] = widen(own.a[part] >> 16);
    }
    for (unsigned part = 0; part < 2; part++) {
      b[pair + part * 8][group] = widen(own.b[part] & 0xffff);
      b[pair + part * 8 + 1][group] = widen(own.b[part] >> 16);
    }
  }
  double sums[16][8] = {};
  for (unsigned row = 0; row < 16; row++)
    for (unsigned k = 0; k < 16; k++)
      for (unsigned column = 0; column < 8; column++) sums[row][column] += a[row][k] * b[k][column];
  for (unsigned lane = 0; lane < 32; lane++) {
    float d[4];
    for (unsigned part = 0; part < 4; part++)
      d[part] = float(sums[lane / 4 + part / 2 * 8][lane % 4 * 2 + part % 2] + double(fragments[lane].d[part]));
    memcpy(exchange.lanes[room][lane], d, sizeof d);
  }
}

struct Scheduler {
  std::vector<Fiber> fibers = std::vector<Fiber>(MAX_THREADS);
  std::unique_ptr<unsigned char[]> stacks{new unsigned char[STACK_STRIDE * MAX_THREADS + 64]};
  std::vector<unsigned char> shared;

  unsigned char *stack(unsigned thread) { return stacks.get() + STACK_STRIDE * thread; }

  void prepare(unsigned thread, uint3 index) {
    Fiber &fiber = fibers[thread];
    fiber.thread = index;
    fiber.linear = thread;
    fiber.state = State::Ready;
    fiber.room = 0;
    fiber.groups_committed = 0;
    fiber.copies.clear();
    memcpy(stack(thread), &CANARY, sizeof CANARY);
    void **top = (void **)((uintptr_t)(stack(thread) + STACK_BYTES) & ~uintptr_t(15));
    *--top = nullptr;
    *--top = (void *)fiber_main;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    fiber.stack_pointer = top;
  }

  // Lets the threads `first..last` go on where all that aren't done have come to the same point.
  const char *release(unsigned first, unsigned last, State state, bool &progressed) {
    const Fiber *any = nullptr;
    for (unsigned thread = first; thread < last; thread++) {
      const Fiber &fiber = fibers[thread];
      if (fiber.state == State::Done) continue;
      if (fiber.state != state) return nullptr;
      if (any && any->collective != fiber.collective) return "the lanes of a warp are at different collectives";
      any = &fiber;
    }
    if (!any) return nullptr;
    if (state == State::AtCollective) {
      for (unsigned thread = first; thread < last; thread++)
        if (fibers[thread].state == State::Done) return "a warp is at a collective when some of its lanes have ended";
      // The room was changed on the way in.
      if (any->collective == Mma) multiply_fragments(exchanges[first / 32], any->room ^ 1);
    }
    for (unsigned thread = first; thread < last; thread++)
      if (fibers[thread].state == state) fibers[thread].state = State::Ready;
    progressed = true;
    return nullptr;
  }

  const char *run_block(unsigned threads, const std::vector<unsigned> &order) {
    for (unsigned done = 0; done < threads;) {
      bool progressed = false;
      done = 0;
      for (unsigned thread : order) {
        Fiber &fiber = fibers[thread];
        if (fiber.state == State::Ready) {
          context.current = &fiber;
          context.thread = fiber.thread;
          simulator_switch(&context.scheduler_stack_pointer, fiber.stack_pointer);
          progressed = true;
        }
        done += fiber.state == State::Done;
      }
      if (done == threads) break;
      for (unsigned first = 0; first < threads; first += 32)
        if (auto problem = release(first, std::min(first + 32, threads), State::AtCollective, progressed))
          return problem;
      if (auto problem = release(0, threads, State::AtBarrier, progressed)) return problem;
      if (!progressed) return "not all threads come to a barrier or collective";
    }
    for (unsigned thread = 0; thread < threads; thread++) {
      if (memcmp(stack(thread), &CANARY, sizeof CANARY)) return "a thread needs a larger stack";
      if (!fibers[thread].copies.empty()) return "an asynchronous copy is never waited for";
    }
    return nullptr;
  }
};

// The permutation of `count` that an order stands for: 0 ascending, 1 descending, others shuffled by it.
static std::vector<unsigned> permutation(unsigned count, unsigned order) {
  std::vector<unsigned> indices(count);
  for (unsigned i = 0; i < count; i++) indices[i] = i;
  if (order == 1) std::reverse(indices.begin(), indices.end());
  if (order > 1) {
    std::mt19937 random(order);
    std::shuffle(indices.begin(), indices.end(), random);
  }
  return indices;
}

static const char *launch(void (*kernel)(void **), const unsigned *grid, unsigned threads, unsigned shared_bytes,
                          void **arguments, unsigned order) {
  static thread_local std::unique_ptr<Scheduler> scheduler;
  if (!scheduler) scheduler.reset(new Scheduler);
  if (threads == 0 || threads > MAX_THREADS) return "a block has 1 to 1024 threads";
  // Exactly as large as asked for, so that a sanitizer sees where it ends.
  std::unique_ptr<uint4[]> shared(new uint4[(shared_bytes + 15) / 16]);
  context.shared_memory = (unsigned char *)shared.get();
  context.kernel = kernel;
  context.arguments = arguments;
  context.grid_dim = {grid[0], grid[1], grid[2]};
  context.block_dim = {threads, 1, 1};
  std::vector<unsigned> thread_order = permutation(threads, order), block_order = permutation(grid[0], order);
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x : block_order) {
        context.block = {x, y, z};
        memset(context.shared_memory, 0xff, shared_bytes);
        for (unsigned thread = 0; thread < threads; thread++) scheduler->prepare(thread, {thread, 0, 0});
        if (auto problem = scheduler->run_block(threads, thread_order)) return problem;
      }
  return nullptr;
}

// A kernel as a function of pointers to its arguments, as cuLaunchKernel takes them.
template <class... A> struct Call {
  template <void (*kernel)(A...), size_t... I> static void with(void **arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_reference_t<A> *)arguments[I]...);
  }
};
template <auto kernel> struct Entry;
template <class... A, void (*kernel)(A...)> struct Entry<kernel> {
  static void run(void **arguments) { Call<A...>::template with<kernel>(arguments, std::index_sequence_for<A...>{}); }
};

struct Named {
  const char *name;
  void (*run)(void **);
};

} // namespace simulator

#define KERNEL(name) static void name
#include "common.cuh"

#define ENTRY(name) {#name, simulator::Entry<&name>::run},
namespace as_written {
#include "all.h"
static const simulator::Named KERNELS[] = {
#include "names.h"
};
} // namespace as_written

#undef __syncthreads
#define __syncthreads() ((void)0)
namespace without_barriers {
// `block_sum` has a barrier too.
#define block_sum block_sum_without_barriers
DEVICE float block_sum_without_barriers(float value, float *room) {
  value = warp_sum(value);
  if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = value;
  float sum = 0.0f;
  for (u32 warp = 0; warp < blockDim.x / WARP; warp++) sum += room[warp];
  return sum;
}
#include "all.h"
static const simulator::Named KERNELS[] = {
#include "names.h"
};
} // namespace without_barriers

// Null where it succeeds, else what is wrong.
extern "C" const char *cuda_device_simulator_launch(const char *name, int barriers, const unsigned *grid,
                                                    unsigned threads, unsigned shared_bytes, void **arguments,
                                                    unsigned order) {
  const simulator::Named *kernels = barriers ? as_written::KERNELS : without_barriers::KERNELS;
  for (size_t i = 0; i < sizeof as_written::KERNELS / sizeof *kernels; i++)
    if (!strcmp(kernels[i].name, name))
      return simulator::launch(kernels[i].run, grid, threads, shared_bytes, arguments, order);
  return "there is no such kernel";
}
