// Thin wrappers over the tensor copy engine (TMA). The tensor map must be a __grid_constant__
// kernel parameter.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "asynct/ptx/mbarrier.cuh"

namespace asynct::ptx {

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Makes this thread's ordinary stores to shared memory visible to the tensor cores and the copy
// engine, once a barrier has ordered their use behind it.
__device__ __forceinline__ void fence_shared_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies one box to shared memory; its bytes count on `barrier`. Coordinates are in elements, the
// innermost first. Elements outside the tensor arrive as zeros.
__device__ __forceinline__ void tma_load_2d(void* destination, const CUtensorMap* map,
                                            uint64_t* barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
      : "memory");
}

__device__ __forceinline__ void tma_load_3d(void* destination, const CUtensorMap* map,
                                            uint64_t* barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ __forceinline__ void tma_load_5d(void* destination, const CUtensorMap* map,
                                            uint64_t* barrier, int c0, int c1, int c2, int c3,
                                            int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

}  // namespace asynct::ptx
