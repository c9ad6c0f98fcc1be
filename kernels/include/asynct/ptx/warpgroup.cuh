// Registers and named barriers of warpgroups (four consecutive warps).
#pragma once

#include <cstdint>

namespace asynct::ptx {

// Both need one if/else per role and __launch_bounds__(threads, 1) to take effect.
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Barrier 0 belongs to __syncthreads. `threads` counts those who wait and those who only arrive.
__device__ __forceinline__ void named_barrier_wait(int barrier, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace asynct::ptx
