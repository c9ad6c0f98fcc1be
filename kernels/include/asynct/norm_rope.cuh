// DyHT with RoPE behind it: the one place of their arithmetic together. Every step is one rounded
// float32 operation, as in dyht.cuh.
#pragma once

#include "asynct/dyht.cuh"

namespace asynct {

// Turns channels c and c + head_size / 2 by one angle.
__device__ __forceinline__ void Turn(float& low, float& high, float cos, float sin) {
  const float turned = __fsub_rn(__fmul_rn(low, cos), __fmul_rn(high, sin));
  high = __fadd_rn(__fmul_rn(high, cos), __fmul_rn(low, sin));
  low = turned;
}

// The cosines and sines of kSize neighbouring angles of a position; as of StoredParameter, only
// Unpack waits for their loads.
template <class T, int kSize>
class StoredAngles {
 public:
  __device__ __forceinline__ StoredAngles(const Parameter& cos_sin, int head_size,
                                          int64_t position, int channel)
      : cos_sin_(cos_sin) {
    const int row = static_cast<int>(position) * head_size;
    cos_.Load(cos_sin, row + channel);
    sin_.Load(cos_sin, row + head_size / 2 + channel);
  }

  __device__ __forceinline__ void Unpack(float (&cos)[kSize], float (&sin)[kSize]) const {
    cos_.Unpack(cos_sin_, cos);
    sin_.Unpack(cos_sin_, sin);
  }

 private:
  const Parameter& cos_sin_;
  StoredParameter<T, kSize> cos_, sin_;
};

// What kSize channels of a head's first half, and those of its second half, become; T is of the
// activations (asynct/dyht.cuh).
template <class T, int kSize>
class NormRope {
 public:
  // Issues the loads of the DyHT's parameters; `channel` is in the first half.
  __device__ __forceinline__ NormRope(const DyHTParams& dyht, int head_size, int channel)
      : low_(dyht, channel), high_(dyht, channel + head_size / 2) {}

  // To be called once.
  __device__ __forceinline__ void Apply(float (&low)[kSize], float (&high)[kSize],
                                        const float (&cos)[kSize], const float (&sin)[kSize]) {
    low_.Prepare();
    low_.Apply(low);
    high_.Prepare();
    high_.Apply(high);
#pragma unroll
    for (int i = 0; i < kSize; ++i) Turn(low[i], high[i], cos[i], sin[i]);
  }

 private:
  DyHT<T, kSize> low_, high_;
};

}  // namespace asynct
