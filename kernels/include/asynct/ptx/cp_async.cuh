// Thin wrappers over cp.async: 16 bytes at a time from global to shared memory, past the registers.
// Copies complete by groups: commit() closes the thread's current group, wait<n>() returns when all
// but its n latest groups are complete. The thread itself then sees its copies, others after a
// barrier. Or they complete on an mbarrier, and who waits for that sees them.
#pragma once

#include <cstdint>

#include "asynct/ptx/mbarrier.cuh"

namespace asynct::ptx {

// Copies 16 bytes, or writes 16 zero bytes where not `valid`: then `global` is not read.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Arrives on `barrier` once all copies that this thread has started are complete.
__device__ __forceinline__ void copy_async_arrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}

}  // namespace asynct::ptx
