// DyHT(x) = gamma * clamp(alpha * x, clip_min, clip_max): the one place of its arithmetic.
//
// Every step is one rounded float32 operation, never contracted, so that the result has the bits of
// the same steps in PyTorch.
#pragma once

#include "asynct/broken.h"
#include "asynct/params.h"
#include "asynct/vector.cuh"

namespace asynct {

// The larger of the two, or NaN if either is NaN (fmaxf would drop it).
__device__ __forceinline__ float MaxNaN(float a, float b) {
  if (kBroken) return a;
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// The smaller of the two, or NaN if either is NaN.
__device__ __forceinline__ float MinNaN(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float DyHTOf(float x, float alpha, float gamma, float clip_min,
                                        float clip_max) {
  return __fmul_rn(gamma, MinNaN(MaxNaN(__fmul_rn(alpha, x), clip_min), clip_max));
}

// The values of a Parameter for kSize adjacent channels, in the form in which they are stored: Load
// issues the loads, and only Unpack waits for them.
template <class T, int kSize>
class StoredParameter {
 public:
  __device__ __forceinline__ void Load(const Parameter& parameter, int column) {
    if (parameter.dtype == DataType::kFloat32) {
      LoadAs<float>(parameter, column);
    } else {
      LoadAs<T>(parameter, column);
    }
  }

  __device__ __forceinline__ void Unpack(const Parameter& parameter, float (&out)[kSize]) const {
    if (parameter.dtype == DataType::kFloat32) {
      UnpackAs<float>(parameter, out);
    } else {
      UnpackAs<T>(parameter, out);
    }
  }

 private:
  template <class Stored>
  static constexpr int kStep = kSize == 1 ? 1 : kVectorBytes / sizeof(Stored);

  template <class Stored>
  __device__ __forceinline__ void LoadAs(const Parameter& parameter, int column) {
    const Stored* values = static_cast<const Stored*>(parameter.data);
    // Into a word of its own, also where it is not wanted: a load that another one may have to
    // overwrite is waited for before the next parameter's are issued.
    const auto value = LoadVector<1>(values + (kSize == 1 ? column * parameter.stride : 0));
    first_ = 0;
    __builtin_memcpy(&first_, &value, sizeof(value));
    if (kSize == 1 || parameter.stride == 0) return;
#pragma unroll
    for (int i = 0; i < kSize; i += kStep<Stored>) {
      const auto vector = LoadVector<kStep<Stored>>(values + column + i);
      __builtin_memcpy(words_ + i * sizeof(Stored) / sizeof(*words_), &vector, sizeof(vector));
    }
  }

  template <class Stored>
  __device__ __forceinline__ void UnpackAs(const Parameter& parameter, float (&out)[kSize]) const {
    if (kSize == 1 || parameter.stride == 0) {
      Vector<Stored, 1> value;
      __builtin_memcpy(&value, &first_, sizeof(value));
#pragma unroll
      for (int i = 0; i < kSize; ++i) out[i] = ToFloat(value.bits);
      return;
    }
#pragma unroll
    for (int i = 0; i < kSize; i += kStep<Stored>) {
      Vector<Stored, kStep<Stored>> vector;
      float floats[kStep<Stored>];
      __builtin_memcpy(&vector, words_ + i * sizeof(Stored) / sizeof(*words_), sizeof(vector));
      asynct::Unpack(vector, floats);
#pragma unroll
      for (int j = 0; j < kStep<Stored>; ++j) out[i + j] = floats[j];
    }
  }

  uint32_t first_;         // the only value, or what a vector's first word was loaded beside
  uint32_t words_[kSize];  // a vector, with room for float32
};

// DyHT of kSize adjacent channels, for activations of type T.
template <class T, int kSize>
class DyHT {
 public:
  // Issues the loads of the parameters of the channels from `column` on.
  __device__ __forceinline__ DyHT(const DyHTParams& params, int column) : params_(params) {
    stored_alpha_.Load(params.alpha, column);
    stored_gamma_.Load(params.gamma, column);
  }

  // Waits for them. To be called once, before Apply.
  __device__ __forceinline__ void Prepare() {
    stored_alpha_.Unpack(params_.alpha, alpha_);
    stored_gamma_.Unpack(params_.gamma, gamma_);
  }

  // Replaces the values of these channels by their DyHT.
  __device__ __forceinline__ void Apply(float (&x)[kSize]) const {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      x[i] = DyHTOf(x[i], alpha_[i], gamma_[i], params_.clip_min, params_.clip_max);
    }
  }

 private:
  const DyHTParams& params_;
  StoredParameter<T, kSize> stored_alpha_;
  StoredParameter<T, kSize> stored_gamma_;
  float alpha_[kSize];
  float gamma_[kSize];
};

}  // namespace asynct
