// Scores of up to 8 query heads of one KV head, and P V, on m16n8k16, all in registers: the
// operands are the 16-byte vectors that the lanes loaded. The order of the head's dimensions inside
// a product is free, and so is the order of the keys; both are chosen so that nothing moves between
// lanes but two scores a page for the gate's window.
#pragma once

#include "asynct/gate.cuh"
#include "pages.cuh"

namespace asynct::bounds {

// The query heads of one KV head as the lanes 4g + t hold them: row g, chunks t, t + 4, ...
__device__ __forceinline__ void load_query(uint4 (&query)[4], const Params& p, int request,
                                           int kv_head, int group) {
  const int g = lane_id() / 4;
  const int64_t head = (request * static_cast<int64_t>(p.kv_heads) + kv_head) * group + g;
  const char* row = static_cast<const char*>(p.query) + head * kRowBytes;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    query[c] = make_uint4(0, 0, 0, 0);
    if (g < group) {
      query[c] = load_vector<Fetch::kPlain>(row + (lane_id() % 4 + 4 * c) * kVectorBytes);
    }
  }
}

__device__ __forceinline__ Gate head_gate(const Params& p, int kv_head, int group, int head) {
  if (head >= group) return {0.0f, 0.0f};
  const int h = kv_head * group + head;
  return make_gate(p.sigma[h], p.alpha[h], p.scale);
}

// The gate of a page whose scores lie in the places where the second product wants them: lane
// 4g + t has head g of keys 4t to 4t + 3.
class QuadGate {
 public:
  __device__ __forceinline__ QuadGate(const Params& p, int request, int kv_head, int group)
      : gate_(head_gate(p, kv_head, group, lane_id() / 4)) {
    load_query(query_, p, request, kv_head, group);
  }

 protected:
  __device__ __forceinline__ uint32_t gate(uint32_t (&weights)[2], float (&s)[4], uint32_t rows) {
    const int t = lane_id() % 4;
    const int before = lane_id() - t + (t + 3) % 4;  // thread 0 gets the page's last two keys
    const float near = __shfl_sync(kWarp, s[3], before);
    const float far = __shfl_sync(kWarp, s[2], before);
    GateLeft left = t == 0 ? gate_left(near_, far_) : gate_left(near, far);
    near_ = near, far_ = far;
    gate_pair(gate_, s[0], s[1], left);
    gate_pair(gate_, s[2], s[3], left);

    uint32_t there = rows >> (4 * t);
    weights[0] = pack_bf16(there & 1 ? s[0] : 0.0f, there & 2 ? s[1] : 0.0f);
    weights[1] = pack_bf16(there & 4 ? s[2] : 0.0f, there & 8 ? s[3] : 0.0f);
    const uint32_t open = ((weights[0] & 0xffff) != 0) | (weights[0] > 0xffff) << 1 |
                          ((weights[1] & 0xffff) != 0) << 2 | (weights[1] > 0xffff) << 3;
    return __reduce_or_sync(kWarp, open << (4 * t));
  }

  uint4 query_[4];

 private:
  Gate gate_;
  float near_ = 0.0f, far_ = 0.0f;  // in thread 0: scores of the two keys before the page
};

// Q as rows 0 to 7, 8 keys as the columns, 64 bytes of a key a load; rows 8 to 15 stay zero. 16
// products a page.
class HeadsAsRows : QuadGate {
 public:
  using KeyRows = QuadRows;
  using QuadGate::QuadGate;

  __device__ __forceinline__ uint32_t score(uint32_t (&weights)[2], const uint4 (&k)[kLoads],
                                            uint32_t rows) {
    float low[4] = {}, high[4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      mma(low, query_[c].x, 0, query_[c].y, 0, k[c].x, k[c].y);
      mma(high, query_[c].x, 0, query_[c].y, 0, k[4 + c].x, k[4 + c].y);
      mma(low, query_[c].z, 0, query_[c].w, 0, k[c].z, k[c].w);
      mma(high, query_[c].z, 0, query_[c].w, 0, k[4 + c].z, k[4 + c].w);
    }
    float s[4] = {low[0], low[1], high[0], high[1]};
    return gate(weights, s, rows);
  }
};

// The same with 128 bytes of a key a load, whole lines: a key takes two neighbouring columns, its
// chunks 0 to 3 (mod 8) in one and 4 to 7 in the other, and each head two rows, g and g + 8, with
// its chunks split likewise. Of the four sums of a lane two are the score's halves; the other two mean
// nothing. 16 products a page.
class HalvesAsRows : QuadGate {
 public:
  using KeyRows = RunRows<8>;
  using QuadGate::QuadGate;

  __device__ __forceinline__ uint32_t score(uint32_t (&weights)[2], const uint4 (&k)[kLoads],
                                            uint32_t rows) {
    float s[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sums[4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4& q0 = query_[2 * half];
        const uint4& q1 = query_[2 * half + 1];
        const uint4& key = k[2 * i + half];
        mma(sums, q0.x, q1.x, q0.y, q1.y, key.x, key.y);
        mma(sums, q0.z, q1.z, q0.w, q1.w, key.z, key.w);
      }
      s[i] = sums[0] + sums[3];
    }
    return gate(weights, s, rows);
  }
};

// 16 keys as the rows, up to 8 heads as the columns: lane 4g + t gets keys 2g and 2g + 1 of heads
// 2t and 2t + 1. 8 products a page, four shuffles and two transposes.
class KeysAsRows {
 public:
  using KeyRows = EvenOddRows;

  __device__ __forceinline__ KeysAsRows(const Params& p, int request, int kv_head, int group) {
    load_query(query_, p, request, kv_head, group);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      gate_[e] = head_gate(p, kv_head, group, lane_id() % 4 * 2 + e);
    }
  }

  __device__ __forceinline__ uint32_t score(uint32_t (&weights)[2], const uint4 (&k)[kLoads],
                                            uint32_t rows) {
    float s[4] = {}, s1[4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      mma(s, k[c].x, k[4 + c].x, k[c].y, k[4 + c].y, query_[c].x, query_[c].y);
      mma(s1, k[c].z, k[4 + c].z, k[c].w, k[4 + c].w, query_[c].z, query_[c].w);
    }
    const int g = lane_id() / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] += s1[i];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int before = (lane_id() + 28) % 32;  // row 0 gets the page's last two keys
      const float near = __shfl_sync(kWarp, s[2 + e], before);
      const float far = __shfl_sync(kWarp, s[e], before);
      GateLeft left = g == 0 ? gate_left(near_[e], far_[e])
                             : gate_left(near, far);
      near_[e] = near, far_[e] = far;
      gate_pair(gate_[e], s[e], s[2 + e], left);
    }
    const uint32_t there = rows >> (2 * g);
    const uint32_t even = there & 1 ? pack_bf16(s[0], s[1]) : 0;
    const uint32_t odd = there & 2 ? pack_bf16(s[2], s[3]) : 0;
    weights[0] = transpose(even);
    weights[1] = transpose(odd);
    return __reduce_or_sync(kWarp, (static_cast<uint32_t>(even != 0) | (odd != 0) << 1) << (2 * g));
  }

 private:
  Gate gate_[2];
  uint4 query_[4];
  float near_[2] = {}, far_[2] = {};
};

// V as the 16 rows (dimensions), heads as the columns. The vectors lie with a key in a lane;
// `transpose` turns two neighbouring dimensions of 8 keys into 8 dimensions of two keys.
struct TransposedValues {
  template <class Score>
  using ValueRows = typename Score::KeyRows;

  // The first operand of product `tile` of 8.
  static __device__ __forceinline__ void operand(uint32_t (&a)[4], const uint4 (&v)[kLoads],
                                                 int tile) {
    const uint4& first = v[tile / 2];
    const uint4& second = v[4 + tile / 2];
    a[0] = transpose(tile % 2 == 0 ? first.x : first.z);
    a[1] = transpose(tile % 2 == 0 ? first.y : first.w);
    a[2] = transpose(tile % 2 == 0 ? second.x : second.z);
    a[3] = transpose(tile % 2 == 0 ? second.y : second.w);
  }
  // The dimensions of rows g and g + 8 of the product.
  static __device__ __forceinline__ int dimension(int tile, int row_of_two) {
    const int g = lane_id() / 4;
    return 8 * (g / 2 + 4 * (tile / 2)) + 4 * (tile % 2) + 2 * row_of_two + g % 2;
  }
};

// The same product; a lane holds four keys of the same dimensions and pairs them by itself.
template <int kStep>  // between the two keys of a pair: 1 in QuadRows' order, 2 in EvenOddRows'
struct PairedValues {
  template <class Score>
  using ValueRows = PairRows;

  static __device__ __forceinline__ uint32_t word(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }
  static __device__ __forceinline__ void operand(uint32_t (&a)[4], const uint4 (&v)[kLoads],
                                                 int tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // keys of rows 0 to 7, then 8 to 15
      const int first = half * (3 - kStep);
      const uint32_t x = word(v[2 * first + tile / 4], tile % 4);
      const uint32_t y = word(v[2 * (first + kStep) + tile / 4], tile % 4);
      a[2 * half] = __byte_perm(x, y, 0x5410);
      a[2 * half + 1] = __byte_perm(x, y, 0x7632);
    }
  }
  static __device__ __forceinline__ int dimension(int tile, int row_of_two) {
    return 8 * (lane_id() / 4 + 8 * (tile / 4)) + 2 * (tile % 4) + row_of_two;
  }
};

template <class Score, class Values, int kQueryHeads>
class MmaMath {
 public:
  static constexpr int kGroup = kQueryHeads;
  using KeyRows = typename Score::KeyRows;
  using ValueRows = typename Values::template ValueRows<Score>;
  static constexpr int kValues = kGroup * kHeadSize;
  static constexpr int kMaxPages = 4;

  __device__ __forceinline__ MmaMath(const Params& p, int request, int kv_head)
      : score_(p, request, kv_head, kGroup) {}

  __device__ __forceinline__ uint32_t score(int page, const uint4 (&k)[kLoads], uint32_t rows) {
    return score_.score(weights_[page], k, rows);
  }

  __device__ __forceinline__ void accumulate(int page, const uint4 (&v)[kLoads]) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t a[4];
      Values::operand(a, v, tile);
      mma(sum_[tile], a[0], a[1], a[2], a[3], weights_[page][0], weights_[page][1]);
    }
  }

  __device__ __forceinline__ void store(float* values) {
    const int head = lane_id() % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (head + i % 2 < kGroup) {
          values[(head + i % 2) * kHeadSize + Values::dimension(tile, i / 2)] = sum_[tile][i];
        }
      }
    }
  }

  static __device__ __forceinline__ float add(float a, float b) { return a + b; }
  static __device__ __forceinline__ float finish(const Params& p, int kv_head, int value,
                                                 float sum) {
    return p.gamma[kv_head * kGroup + value / kHeadSize] * sum;
  }

 private:
  static constexpr int kTiles = kHeadSize / 16;
  Score score_;
  uint32_t weights_[kMaxPages][2];
  float sum_[kTiles][4] = {};
};

}  // namespace asynct::bounds
