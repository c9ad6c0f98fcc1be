// Scores, gate and P V of up to four query heads of one KV head in one warp, on m16n8k16, with the
// rows of K and V as the lanes loaded them for operands. The order of the head's dimensions in a
// product is free, and so is the order of the keys: both are such that nothing moves between lanes
// but the scores that the gate's window wants from the keys to the left.
//
// Q K: a key takes two neighbouring columns of the product, its even and odd groups of four
// vectors, and a head the two rows g and g + 8, split likewise. So of a lane's four sums two are
// the halves of a score, and the others mean nothing. Lane 4g + t gets head g % 4 of the keys 4t to
// 4t + 3.
// P V: the columns are the heads, twice. The first half of what is summed over are eight keys, and
// 16 dimensions are the rows; the second half are the same keys again with 16 other dimensions as
// the rows. Each half has weights only in its own four columns. That keeps 32 dimensions in as many
// registers as eight columns of heads would need for 16.
#pragma once

#include "asynct/fp8.cuh"
#include "asynct/ptx/cp_async.cuh"
#include "asynct/ptx/mma.cuh"
#include "gates.cuh"
#include "raw_step.cuh"

namespace asynct::decode {

template <class T, class CacheT, int kDim, class KeysGate>
class GroupMath {
 public:
  using Element = T;
  using Cache = CacheT;
  using Row = RowShape<Cache, kDim>;
  using Page = PageWords<Row>;
  static constexpr int kHeadDim = kDim;

  // In a block's shared memory: the queries of this segment and of the next as the lanes want them
  // for operands, and for each warp the keys before its first page and its part of a raw step.
  struct Shared {
    uint4 queries[2][kDim / 32][16];
    RowsBefore<Row, KeysGate::kLeft> before[kDecodeWarps];
    RawRows<T, Cache, kDim> raw[kDecodeWarps];
  };

  __device__ __forceinline__ GroupMath(const DecodeParams& p, Shared& shared)
      : shared_(shared), heads_(head_group(p).heads) {
    const HeadGroup group = head_group(p);
    const AttentionParams& attention = p.attention;
    gate_.set(attention.gate, group.first + min(lane_id() / 4 % kGroupHeads, heads_ - 1),
              attention.gate.scale * stored_scale(attention.cache.key, group.kv_head));
  }

  // Asks for what a segment begins with: a part of the queries, the keys before the first page and,
  // of a raw step, what goes with those.
  __device__ __forceinline__ void ask(const DecodeParams& p, const DecodeSegment& segment,
                                      const PageRun& run, int parity) {
    const int lane = lane_id_anew();
    const HeadGroup group = head_group(p);
    if (warp() < kQueryWarps && lane < 16) {
      // Eight chunks, and those half a head on.
      const int chunk = warp() * 8 + lane % 8;
      const int channel = chunk % (kDim / 16) * 8 + lane / 8 * (kDim / 2);
      const int g = chunk / (kDim / 16);
      const HeadsView& view = p.attention.query;
      const T* head = static_cast<const T*>(view.data) + segment.token * view.token_stride +
                      (group.first + min(g, group.heads - 1)) * view.head_stride;
      ptx::copy_async(query_words(parity, g, channel), head + channel, g < group.heads);
    }
    shared_.before[warp()].ask(p.key, group.kv_head, run.place_before);
    if (p.is_raw()) raw().ask(p, segment, run.cached < run.keys, parity);
    ptx::copy_async_commit();
  }

  // Waits for what was asked for the segment at `listed`; the block has it after a barrier.
  __device__ __forceinline__ void receive(const DecodeParams& p, int listed, const PageRun& run,
                                          int parity) {
    if (!p.is_raw()) {
      ptx::copy_async_wait<0>();
      return;
    }
    const int word = warp() * 32 + lane_id_anew();
    const int channel = word % (kDim / 4) * 2;
    typename RawRows<T, Cache, kDim>::Turn turn(p.raw.norm_rope.q, channel);
    ptx::copy_async_wait<0>();
    __syncwarp();
    if (warp() < kQueryWarps) {
      const int g = word / (kDim / 4);
      turn.apply(raw(), raw().is_float(p.raw.norm_rope.cos_sin), *query_words(parity, g, channel),
                 *query_words(parity, g, channel + kDim / 2));
    }
    if (run.cached < run.keys) raw().store_newest(p, load_segment(p, listed).token, parity);
  }

  // Begins the segment that was received last.
  __device__ __forceinline__ void begin(int parity) {
    query_ = shared_.queries[parity];
    Page keys;
    shared_.before[warp()].read(keys);
    scores(before_, keys);
#pragma unroll
    for (auto& tile : sum_) {
#pragma unroll
      for (float& sum : tile) sum = 0.0f;
    }
  }

  // Computes p of a page whose keys are `rows`. Returns a bit for each row of V that some head
  // wants.
  __device__ __forceinline__ uint32_t score(const Page& keys, uint32_t rows) {
    float s[4], left[KeysGate::kLeft];
    scores(s, keys);
    gather_left(left, s);
#pragma unroll
    for (int i = 0; i < 4; ++i) before_[i] = s[i];
    gate_.apply(s, left);

    const int t = lane_id() % 4;
    const uint32_t there = lane_id() / 4 % kGroupHeads < heads_ ? rows >> (4 * t) : 0;
    weights_[0] = pack(there & 1 ? s[0] : 0.0f, there & 2 ? s[1] : 0.0f);
    weights_[1] = pack(there & 4 ? s[2] : 0.0f, there & 8 ? s[3] : 0.0f);
    const uint32_t open = ((weights_[0] & 0xffff) != 0) | (weights_[0] > 0xffff) << 1 |
                          ((weights_[1] & 0xffff) != 0) << 2 | (weights_[1] > 0xffff) << 3;
    return __reduce_or_sync(kWarp, open << (4 * t));
  }

  // Puts the newest key, which is not in the cache, in its row of a page; and the newest value, if
  // it is among the rows that are wanted.
  __device__ __forceinline__ void insert_key(Page& keys, int row, int parity) const {
    raw().template insert<KeyLanes, Row>(keys, row, parity);
  }
  __device__ __forceinline__ void insert_value(Page& values, int row, int parity,
                                               uint32_t wanted) const {
    if (wanted >> row & 1) raw().template insert<ValueLanes, Row>(values, row, parity);
  }

  // Adds P V of the page that was scored last; the rows that nobody wants are zeros.
  __device__ __forceinline__ void accumulate(const Page& values) {
    const bool first = lane_id() < 16;
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
#pragma unroll
      for (int tile = 0; tile < kTilesPerVector; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // keys 2i and 2i + 1 of every lane
          uint32_t a[4];
          pair_keys(a[0], a[1], values[2 * i][v], values[2 * i + 1][v], 2 * tile);
          pair_keys(a[2], a[3], values[2 * i][v], values[2 * i + 1][v], 2 * tile + 1);
          ptx::mma<T>(sum_[v * kTilesPerVector + tile], a[0], a[1], a[2], a[3],
                      first ? weights_[i] : 0, first ? 0 : weights_[i]);
        }
      }
    }
  }

  // Writes the warp's sums to [heads, kHeadDim].
  __device__ __forceinline__ void store(float* sums) const {
    const int lane = lane_id_anew();
    const int half = lane % 4 / 2;
    const int head = lane % 2 * 2;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int dim = (lane / 4 + tile / kTilesPerVector * 8) * Row::kElements +
                      (tile % kTilesPerVector * 2 + half) * 2;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (head + e >= heads_) continue;
        *reinterpret_cast<float2*>(sums + (head + e) * kHeadDim + dim) =
            make_float2(sum_[tile][e], sum_[tile][2 + e]);
      }
    }
  }

 private:
  static constexpr int kQueryWarps = kDim / 32;  // that ask for queries, 64 channels each

  static __device__ __forceinline__ int warp() { return threadIdx.x / 32; }
  __device__ __forceinline__ RawRows<T, Cache, kDim>& raw() const { return shared_.raw[warp()]; }

  // Where the words of a head's query from a channel on are: those of eight channels side by side.
  __device__ __forceinline__ uint32_t* query_words(int parity, int g, int channel) const {
    const int group = channel / Row::kElements;  // of eight, two for each of a row's vectors
    const int vector = group / 4 * kQueryVectors + channel % Row::kElements / 8;
    auto* words = reinterpret_cast<uint32_t*>(&shared_.queries[parity][vector][4 * g + group % 4]);
    return words + channel % 8 / 2;
  }

  static constexpr int kTiles = kHeadDim / 32;
  static constexpr int kTilesPerVector = Row::kElements / 4;
  static constexpr int kQueryVectors = Row::kElements / 8;  // for a half of a row's vector
  static constexpr bool kFp8 = sizeof(Cache) == 1;

  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    const auto pair = PairOf<T>::Round(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }

  // The elements of K that go with two words of Q, in the product's type.
  static __device__ __forceinline__ void key_words(uint32_t (&b)[2],
                                                   const uint32_t (&words)[Row::kWords],
                                                   int step) {
    if constexpr (kFp8) {
      FromFp8<T>(words[step], b);
    } else {
      b[0] = words[2 * step];
      b[1] = words[2 * step + 1];
    }
  }

  __device__ __forceinline__ void scores(float (&s)[4], const Page& keys) {
    float sums[kLaneRows][4] = {};
#pragma unroll
    for (int v = 0; v < Row::kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kQueryVectors; ++i) {
        const uint4 low = query_[2 * v * kQueryVectors + i][lane_id() % 16];
        const uint4 high = query_[(2 * v + 1) * kQueryVectors + i][lane_id() % 16];
#pragma unroll
        for (int row = 0; row < kLaneRows; ++row) {
          uint32_t b[2];
          key_words(b, keys[row][v], 2 * i);
          ptx::mma<T>(sums[row], low.x, high.x, low.y, high.y, b[0], b[1]);
        }
#pragma unroll
        for (int row = 0; row < kLaneRows; ++row) {
          uint32_t b[2];
          key_words(b, keys[row][v], 2 * i + 1);
          ptx::mma<T>(sums[row], low.z, high.z, low.w, high.w, b[0], b[1]);
        }
      }
    }
#pragma unroll
    for (int row = 0; row < kLaneRows; ++row) s[row] = sums[row][0] + sums[row][3];
  }

  // The scores of the keys to the left of the lane's first: from the lanes to its left, and for the
  // first lanes of four from the page before.
  __device__ __forceinline__ void gather_left(float (&left)[KeysGate::kLeft],
                                              const float (&s)[4]) const {
    const int t = lane_id() % 4;
#pragma unroll
    for (int m = 1; m <= KeysGate::kLeft; ++m) {
      const int lanes = (m + 3) / 4;
      const int key = 4 * lanes - m;
      const float sent = t + lanes >= 4 ? before_[key] : s[key];
      left[m - 1] = __shfl_sync(kWarp, sent, lane_id() - t + (t + 4 - lanes) % 4);
    }
  }

  // Dimensions 2u and 2u + 1 of a vector, each of two keys, in the product's type.
  static __device__ __forceinline__ void pair_keys(uint32_t& even, uint32_t& odd,
                                                   const uint32_t (&x)[Row::kWords],
                                                   const uint32_t (&y)[Row::kWords], int u) {
    if constexpr (kFp8) {
      uint32_t pairs[2];
      FromFp8<T>(__byte_perm(x[u / 2], y[u / 2], u % 2 == 0 ? 0x5140 : 0x7362), pairs);
      even = pairs[0];
      odd = pairs[1];
    } else {
      even = __byte_perm(x[u], y[u], 0x5410);
      odd = __byte_perm(x[u], y[u], 0x7632);
    }
  }

  Shared& shared_;
  const uint4 (*query_)[16];
  KeysGate gate_;
  int heads_;
  float before_[4];  // scores of the page before
  uint32_t weights_[2];
  float sum_[kTiles][4];
};

}  // namespace asynct::decode
