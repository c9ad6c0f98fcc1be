// Thin wrappers over the instructions that the decode bench tries.
#pragma once

#include <cstdint>

#include "asynct/ptx/mbarrier.cuh"

namespace asynct::bounds {

// How a 16-byte load of the cache treats the levels above.
enum class Fetch {
  kPlain,     // 16 bytes, kept out of L1
  kWholeRow,  // and L2 fetches the 256-byte row around them
};

template <Fetch kFetch>
__device__ __forceinline__ uint4 load_vector(const void* address) {
  uint4 v;
  if constexpr (kFetch == Fetch::kWholeRow) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
  }
  return v;
}

// d += a * b over 16x8x16, bf16 in, float32 out. With g = lane / 4 and t = lane % 4: a0 is row g,
// a1 row g + 8, columns 2t and 2t + 1; a2 and a3 the same rows, columns 8 further on; b0 is column
// g, rows 2t and 2t + 1, b1 the rows 8 further on; d is row g, columns 2t and 2t + 1, then row
// g + 8.
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                    uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Transposes an 8x8 tile of 16-bit elements; lane 4r + c holds row r, columns 2c and 2c + 1.
__device__ __forceinline__ uint32_t transpose(uint32_t tile) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(tile));
  return result;
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(
                   ptx::shared_address(shared)),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// One contiguous row by the copy engine; its bytes count on `barrier`.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(ptx::shared_address(shared)),
      "l"(global), "r"(bytes), "r"(ptx::shared_address(barrier))
      : "memory");
}

}  // namespace asynct::bounds
