// Thin wrappers over wgmma: D[64, N] += A[64, 16] B[16, N] by one warpgroup, with A and B in bf16
// or fp16 and D in float32.
//
// Thread t of the warpgroup holds, with g = t / 32 * 16 + t % 32 / 4 and q = t % 4:
//   d[4 j + 2 h + e]  element (row g + 8 h, column 8 j + 2 q + e) of D
//   a[2 i + h]        elements (row g + 8 h, columns 8 i + 2 q + {0, 1}) of A, if it is in registers
// so a pair of D's column groups, packed to 16 bits, is A's fragment as it stands.
// B is K-major in shared memory, or N-major with kTransposeB = 1.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "asynct/ptx/mbarrier.cuh"

namespace asynct::ptx {

// Orders earlier writes of accumulators and A registers before the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending committed groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of an accumulator across a wait or an issue.
template <int kSize>
__device__ __forceinline__ void wgmma_pin(float (&d)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Descriptor of an operand in shared memory with the 128-byte swizzle (1024-byte aligned atoms of
// eight 128-byte lines). `stride` is the byte distance of atoms eight lines apart, `leading` that
// of the next 64 elements of N (only an N-major operand has one).
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* operand, uint32_t leading,
                                                     uint32_t stride) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | uint64_t{stride >> 4} << 32 | uint64_t{leading >> 4} << 16 |
         ((shared_address(operand) & 0x3FFFF) >> 4);
}

// A descriptor `bytes` further on.
__device__ __forceinline__ uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

template <typename T>
struct WgmmaType;
template <>
struct WgmmaType<__nv_bfloat16> {
  static constexpr char kName[] = ".bf16";
};
template <>
struct WgmmaType<__half> {
  static constexpr char kName[] = ".f16";
};

#define ASYNCT_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ASYNCT_D16(i) ASYNCT_D4(i), ASYNCT_D4(i + 4), ASYNCT_D4(i + 8), ASYNCT_D4(i + 12)
#define ASYNCT_D32 ASYNCT_D16(0), ASYNCT_D16(16)
#define ASYNCT_D64 ASYNCT_D32, ASYNCT_D16(32), ASYNCT_D16(48)

template <int kTransposeB, typename T = __nv_bfloat16>
__device__ __forceinline__ void wgmma(float (&d)[16], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32%20%20 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, %16, %17, accumulate, 1, 1, 0, %19;\n}\n"
      : ASYNCT_D16(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeB),
        "C"(WgmmaType<T>::kName));
}

template <int kTransposeB, typename T = __nv_bfloat16>
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32%36%36 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, accumulate, 1, 1, 0, %35;\n}\n"
      : ASYNCT_D32
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeB),
        "C"(WgmmaType<T>::kName));
}

template <int kTransposeB, typename T = __nv_bfloat16>
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32%68%68 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, accumulate, 1, 1, 0, %67;\n}\n"
      : ASYNCT_D64
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeB),
        "C"(WgmmaType<T>::kName));
}

template <int kTransposeB, typename T = __nv_bfloat16>
__device__ __forceinline__ void wgmma(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  asm volatile(
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32%39%39 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, accumulate, 1, 1, %38;\n}\n"
      : ASYNCT_D32
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),
        "n"(kTransposeB), "C"(WgmmaType<T>::kName));
}

template <int kTransposeB, typename T = __nv_bfloat16>
__device__ __forceinline__ void wgmma(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  asm volatile(
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32%71%71 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, accumulate, 1, 1, %70;\n}\n"
      : ASYNCT_D64
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),
        "n"(kTransposeB), "C"(WgmmaType<T>::kName));
}

#undef ASYNCT_D64
#undef ASYNCT_D32
#undef ASYNCT_D16
#undef ASYNCT_D4

}  // namespace asynct::ptx
