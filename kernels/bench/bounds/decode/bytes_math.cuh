// Reads like attention and computes next to nothing: the V row of a key is read where a hash of the
// whole K row is small, and the output is the XOR of the V rows read. The bandwidth that this
// reaches bounds every kernel that skips V.
#pragma once

#include "pages.cuh"

namespace asynct::bounds {

template <class KeyPattern, class ValuePattern>
class BytesMath {
 public:
  using KeyRows = KeyPattern;
  using ValueRows = ValuePattern;
  static constexpr int kGroup = 0;
  static constexpr int kValues = kRowBytes / 4;  // words of output per KV head
  static constexpr int kMaxPages = 4;

  __device__ __forceinline__ BytesMath(const Params& p, int, int) : keep_below_(p.keep_below) {}

  // Returns which rows of V are wanted, the same in every lane. `page` counts the pages whose
  // score() came before accumulate(); `rows` are the rows of K that are there.
  __device__ __forceinline__ uint32_t score(int, const uint4 (&k)[kLoads], uint32_t rows) {
    constexpr int kLoadsPerRow = kLoads / KeyRows::kSlots;
    uint32_t wanted = 0;
#pragma unroll
    for (int slot = 0; slot < KeyRows::kSlots; ++slot) {
      uint32_t hash = 0;
#pragma unroll
      for (int i = 0; i < kLoadsPerRow; ++i) {
        const uint4& vector = k[slot * kLoadsPerRow + i];
        hash ^= vector.x ^ vector.y ^ vector.z ^ vector.w;
      }
#pragma unroll
      for (int m = 1; m < 16 / kLoadsPerRow; m *= 2) hash ^= __shfl_xor_sync(kWarp, hash, m);
      wanted |= static_cast<uint32_t>(hash * 0x9e3779b1u < keep_below_) << slot_row<KeyRows>(slot);
    }
    return __reduce_or_sync(kWarp, wanted) & rows;
  }

  // Takes the wanted rows of V, zeros elsewhere.
  __device__ __forceinline__ void accumulate(int, const uint4 (&v)[kLoads]) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      uint4& sum = sum_[j % kChunks];
      sum = make_uint4(sum.x ^ v[j].x, sum.y ^ v[j].y, sum.z ^ v[j].z, sum.w ^ v[j].w);
    }
  }

  // Writes the warp's kValues values.
  __device__ __forceinline__ void store(float* values) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      uint32_t word[4] = {sum_[i].x, sum_[i].y, sum_[i].z, sum_[i].w};
#pragma unroll
      for (int m = 1; m < 32; m *= 2) {
        if ((ValueRows::kSameChunkLanes & m) == 0) continue;
#pragma unroll
        for (int w = 0; w < 4; ++w) word[w] ^= __shfl_xor_sync(kWarp, word[w], m);
      }
      if ((lane_id() & ValueRows::kSameChunkLanes) != 0) continue;
      const int chunk = ValueRows::first_chunk(lane_id()) + i * ValueRows::kChunkStep;
#pragma unroll
      for (int w = 0; w < 4; ++w) values[4 * chunk + w] = __uint_as_float(word[w]);
    }
  }

  static __device__ __forceinline__ float add(float a, float b) {
    return __uint_as_float(__float_as_uint(a) ^ __float_as_uint(b));
  }
  static __device__ __forceinline__ float finish(const Params&, int, int, float sum) { return sum; }

 private:
  static constexpr int kChunks = kLoads / ValueRows::kSlots;  // of a row, in a lane
  uint32_t keep_below_;
  uint4 sum_[kChunks] = {};
};

}  // namespace asynct::bounds
