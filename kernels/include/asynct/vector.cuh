// Vectors of adjacent elements as a thread loads and stores them: 16 bytes, or one element.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace asynct {

constexpr int kVectorBytes = 16;

// kSize elements of type T, in the form in which they are stored.
template <class T, int kSize>
struct Vector {
  static_assert(kSize == 1 || kSize * sizeof(T) == kVectorBytes);
  std::conditional_t<kSize == 1, T, uint4> bits;
};

template <int kSize, class T>
__device__ __forceinline__ Vector<T, kSize> LoadVector(const T* address) {
  return {__ldg(reinterpret_cast<const decltype(Vector<T, kSize>::bits)*>(address))};
}

template <class T, int kSize>
__device__ __forceinline__ void StoreVector(T* address, const Vector<T, kSize>& vector) {
  // Not an assignment, which the compiler may split into words.
  __stwb(reinterpret_cast<decltype(Vector<T, kSize>::bits)*>(address), vector.bits);
}

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(__half value) { return __half2float(value); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }

// Two adjacent elements, the pair of the stored type that converts in as few instructions as it can.
__device__ __forceinline__ float2 ToFloats(float2 pair) { return pair; }
__device__ __forceinline__ float2 ToFloats(__half2 pair) { return __half22float2(pair); }
__device__ __forceinline__ float2 ToFloats(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }

template <class T>
struct PairOf;
template <>
struct PairOf<float> {
  using Type = float2;
  static __device__ __forceinline__ Type Round(float a, float b) { return {a, b}; }
};
template <>
struct PairOf<__half> {
  using Type = __half2;
  static __device__ __forceinline__ Type Round(float a, float b) { return __floats2half2_rn(a, b); }
};
template <>
struct PairOf<__nv_bfloat16> {
  using Type = __nv_bfloat162;
  static __device__ __forceinline__ Type Round(float a, float b) {
    return __floats2bfloat162_rn(a, b);
  }
};

// The elements of `vector` as floats.
template <class T, int kSize>
__device__ __forceinline__ void Unpack(const Vector<T, kSize>& vector, float (&out)[kSize]) {
  if constexpr (kSize == 1) {
    out[0] = ToFloat(vector.bits);
  } else {
    typename PairOf<T>::Type pairs[kSize / 2];
    __builtin_memcpy(pairs, &vector.bits, sizeof(pairs));
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) {
      const float2 pair = ToFloats(pairs[i]);
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  }
}

// `values`, each rounded to the nearest T, ties to even.
template <class T, int kSize>
__device__ __forceinline__ Vector<T, kSize> Pack(const float (&values)[kSize]) {
  Vector<T, kSize> vector;
  if constexpr (kSize == 1) {
    vector.bits = static_cast<T>(values[0]);
  } else {
    typename PairOf<T>::Type pairs[kSize / 2];
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) {
      pairs[i] = PairOf<T>::Round(values[2 * i], values[2 * i + 1]);
    }
    __builtin_memcpy(&vector.bits, pairs, sizeof(pairs));
  }
  return vector;
}

}  // namespace asynct
