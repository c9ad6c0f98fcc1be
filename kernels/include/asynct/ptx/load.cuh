// Thin wrappers over loads of data that is read once: kept out of L1. The memory must not be written
// while the kernel runs.
#pragma once

#include <cstdint>

namespace asynct::ptx {

__device__ __forceinline__ void load_once(uint32_t (&words)[4], const void* address) {
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(address));
}

__device__ __forceinline__ void load_once(uint32_t (&words)[2], const void* address) {
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "l"(address));
}

}  // namespace asynct::ptx
