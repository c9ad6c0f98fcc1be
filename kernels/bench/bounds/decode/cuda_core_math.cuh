// Scores and P V on the CUDA cores: kLanes lanes share a key, K in pairs, Q in registers.
#pragma once

#include "asynct/gate.cuh"
#include "asynct/vector.cuh"
#include "pages.cuh"

namespace asynct::bounds {

__device__ __forceinline__ void unpack(float (&out)[8], const uint4& vector) {
  Unpack(Vector<__nv_bfloat16, 8>{vector}, out);
}

// Two query heads a KV head. After a page's products the lanes of a key's group hold one sum for
// each of their keys and heads: lane `part` keeps key part % kRun, head part / kRun.
template <int kLanes>
class CudaCoreMath {
 public:
  using KeyRows = RunRows<kLanes>;
  using ValueRows = RunRows<16>;
  static constexpr int kGroup = 2;
  static constexpr int kValues = kGroup * kHeadSize;
  static constexpr int kMaxPages = 2;

  __device__ __forceinline__ CudaCoreMath(const Params& p, int request, int kv_head) {
    const int h = kv_head * kGroup + part() / kRun;
    gate_ = make_gate(p.sigma[h], p.alpha[h], p.scale);
    const char* rows = static_cast<const char*>(p.query) +
                       (request * static_cast<int64_t>(p.kv_heads) + kv_head) * kGroup * kRowBytes;
#pragma unroll
    for (int head = 0; head < kGroup; ++head) {
#pragma unroll
      for (int c = 0; c < kVectors; ++c) {
        unpack(query_[head][c], load_vector<Fetch::kPlain>(
                                    rows + head * kRowBytes +
                                    (part() + kLanes * c) * kVectorBytes));
      }
    }
  }

  __device__ __forceinline__ uint32_t score(int page, const uint4 (&k)[kLoads], uint32_t rows) {
    float sums[kLanes];  // [head][key of the run]
#pragma unroll
    for (int key = 0; key < kRun; ++key) {
      sums[key] = sums[kRun + key] = 0.0f;
#pragma unroll
      for (int c = 0; c < kVectors; ++c) {
        float x[8];
        unpack(x, k[key * kVectors + c]);
#pragma unroll
        for (int d = 0; d < 8; ++d) {
          sums[key] = fmaf(query_[0][c][d], x[d], sums[key]);
          sums[kRun + key] = fmaf(query_[1][c][d], x[d], sums[kRun + key]);
        }
      }
    }
    scatter<kLanes>(sums);

    const int key = part() % kRun;
    const float near = __shfl_sync(kWarp, sums[0], before(key, 1));
    const float far = __shfl_sync(kWarp, sums[0], before(key, 2));
    const bool first_run = lane_id() < kLanes;  // these got the page's last keys
    const GateLeft left = gate_left(first_run && key < 1 ? near_ : near,
                                    first_run && key < 2 ? far_ : far);
    near_ = near, far_ = far;
    const float window = fmaxf(sums[0], 0.0f) + left.r1 + left.r2;
    const float open = __saturatef(fmaf(-gate_.window, window, gate_.score * sums[0]));
    const int row = lane_id() / kLanes * kRun + key;
    weight_[page] = rows >> row & 1 ? open : 0.0f;
    return __reduce_or_sync(kWarp, static_cast<uint32_t>(weight_[page] != 0.0f) << row);
  }

  __device__ __forceinline__ void accumulate(int page, const uint4 (&v)[kLoads]) {
    const int half = lane_id() / 16;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int row = 8 * half + j;
      float x[8];
      unpack(x, v[j]);
#pragma unroll
      for (int head = 0; head < kGroup; ++head) {
        const int holder = row / kRun * kLanes + head * kRun + row % kRun;
        const float weight = __shfl_sync(kWarp, weight_[page], holder);
#pragma unroll
        for (int d = 0; d < 8; ++d) sum_[head][d] = fmaf(weight, x[d], sum_[head][d]);
      }
    }
  }

  __device__ __forceinline__ void store(float* values) {
#pragma unroll
    for (int head = 0; head < kGroup; ++head) {
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        const float sum = sum_[head][d] + __shfl_xor_sync(kWarp, sum_[head][d], 16);
        if (lane_id() < 16) values[head * kHeadSize + lane_id() * 8 + d] = sum;
      }
    }
  }

  static __device__ __forceinline__ float add(float a, float b) { return a + b; }
  static __device__ __forceinline__ float finish(const Params& p, int kv_head, int value,
                                                 float sum) {
    return p.gamma[kv_head * kGroup + value / kHeadSize] * sum;
  }

 private:
  static constexpr int kRun = kLanes / 2;  // keys of a page for each group of lanes
  static constexpr int kVectors = 16 / kLanes;

  static __device__ __forceinline__ int part() { return lane_id() % kLanes; }

  // The lane that has the score of the key `distance` before this lane's: wraps to the page's end.
  static __device__ __forceinline__ int before(int key, int distance) {
    return (lane_id() + 32 - (key >= distance ? distance : distance + kRun)) % 32;
  }

  // Adds kSize values over kSize lanes so that lane `part` ends with value `part`.
  template <int kSize>
  static __device__ __forceinline__ void scatter(float (&sums)[kLanes]) {
    constexpr int kHalf = kSize / 2;
    const bool upper = (lane_id() & kHalf) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float sent = upper ? sums[i] : sums[kHalf + i];
      const float kept = upper ? sums[kHalf + i] : sums[i];
      sums[i] = kept + __shfl_xor_sync(kWarp, sent, kHalf);
    }
    if constexpr (kHalf > 1) scatter<kHalf>(sums);
  }

  Gate gate_;
  float query_[kGroup][kVectors][8];
  float near_ = 0.0f, far_ = 0.0f;
  float weight_[kMaxPages];
  float sum_[kGroup][8] = {};
};

}  // namespace asynct::bounds
