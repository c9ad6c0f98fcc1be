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

// What kSize channels of a head's first half, and those of its second half, become.
template <class T, int kSize>
class NormRope {
 public:
  // Issues the loads of all parameters; `channel` is in the first half.
  __device__ __forceinline__ NormRope(const Parameter& cos_sin, const DyHTParams& dyht,
                                      int head_size, int channel, int64_t position)
      : cos_sin_(cos_sin), low_(dyht, channel), high_(dyht, channel + head_size / 2) {
    const int row = static_cast<int>(position) * head_size;
    cos_.Load(cos_sin, row + channel);
    sin_.Load(cos_sin, row + head_size / 2 + channel);
  }

  // To be called once.
  __device__ __forceinline__ void Apply(Vector<T, kSize>& low, Vector<T, kSize>& high) {
    float x[kSize], y[kSize], cos[kSize], sin[kSize];
    Unpack(low, x);
    low_.Prepare();
    low_.Apply(x);
    Unpack(high, y);
    high_.Prepare();
    high_.Apply(y);
    cos_.Unpack(cos_sin_, cos);
    sin_.Unpack(cos_sin_, sin);
#pragma unroll
    for (int i = 0; i < kSize; ++i) Turn(x[i], y[i], cos[i], sin[i]);
    low = Pack<T>(x);
    high = Pack<T>(y);
  }

 private:
  const Parameter& cos_sin_;
  DyHT<T, kSize> low_, high_;
  StoredParameter<T, kSize> cos_, sin_;
};

}  // namespace asynct
