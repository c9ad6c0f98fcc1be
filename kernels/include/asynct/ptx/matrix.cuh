// Thin wrappers over ldmatrix and stmatrix: four 8x8 tiles of 16-bit elements between shared memory
// and registers. Lane l gives the address of row l % 8 of tile l / 8; register i holds tile i.
#pragma once

#include <cstdint>

#include "asynct/ptx/mbarrier.cuh"

namespace asynct::ptx {

__device__ __forceinline__ void load_matrix_x4(uint32_t (&tiles)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(shared_address(row))
               : "memory");
}

// The same, each tile transposed.
__device__ __forceinline__ void load_matrix_x4_transposed(uint32_t (&tiles)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void store_matrix_x4(void* row, uint32_t t0, uint32_t t1, uint32_t t2,
                                                uint32_t t3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(row)),
               "r"(t0), "r"(t1), "r"(t2), "r"(t3)
               : "memory");
}

}  // namespace asynct::ptx
