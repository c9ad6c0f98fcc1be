// A consumer warpgroup: 64 query rows of one head against all their key tiles.
#pragma once

#include "asynct/ptx/matrix.cuh"
#include "asynct/ptx/warpgroup.cuh"
#include "asynct/ptx/wgmma.cuh"
#include "wgmma_shared.cuh"

namespace asynct::prefill_wgmma {

// The schedule is linked across works: the products with the values of one tile and with the keys
// of the next go out together, also when the next tile is another work's, whose scores then come up
// under this one's epilogue. The two warpgroups issue their products in turn.
template <class Traits>
class Consumer {
  using T = typename Traits::Element;
  using Ring = prefill_wgmma::Ring<Traits::kStages>;
  static constexpr int kScores = Traits::kTileKeys / 2;  // of a thread, in two rows
  static constexpr uint32_t kTileLineBytes = Traits::kTileKeys * kLine * sizeof(T);
  static constexpr int kPartDim = Traits::kHeadDim < 128 ? Traits::kHeadDim : 128;
  static constexpr int kParts = Traits::kHeadDim / kPartDim;  // products that make an output row

 public:
  __device__ __forceinline__ Consumer(const Params& params, Shared<Traits>& shared, int group)
      : params_(params), shared_(shared), group_(group) {}

  __device__ __forceinline__ void Run() {
    if (group_ == kConsumers - 1) PassTurn();  // the first turn, to the first warpgroup
    uint32_t n = 0;  // the work's number
    if (shared_.WaitWork(n).tiles == 0) return;
    typename Traits::Scores scores = StartScores(shared_.WaitWork(n));
    float o[kParts][kPartDim / 2];
    float s[kScores];
    uint32_t p[kScores / 8][4];
    Clear(o);

    shared_.query_ring.WaitFull({0});
    shared_.key_ring.WaitFull({0});
    TakeTurn();
    ptx::wgmma_fence();
    MultiplyKeys(s, 0, {0});
    ptx::wgmma_commit();
    PassTurn();
    FinishKeys(s, p, scores, n, 0, {0});

    int tile = 0;
    typename Ring::Position at;
    for (;; ++at.count) {
      const bool ends = ++tile == shared_.WorkAt(n).tiles;
      if (ends) {
        if (shared_.WaitWork(n + 1).tiles == 0) break;
        shared_.query_ring.WaitFull({n + 1});
      }
      const typename Ring::Position key_at{at.count + 1};
      shared_.value_ring.WaitFull(at);
      shared_.key_ring.WaitFull(key_at);
      TakeTurn();
      ptx::wgmma_fence();
      MultiplyValues(o, p, at);
      ptx::wgmma_commit();
      MultiplyKeys(s, ends ? n + 1 : n, key_at);
      ptx::wgmma_commit();
      PassTurn();
      ptx::wgmma_wait<1>();
      shared_.value_ring.Release(at);
      Pin(o);
      if (ends) {
        StoreOut(o, shared_.WorkAt(n));
        Clear(o);
        shared_.work_ring.Release({n});
        scores = StartScores(shared_.WorkAt(++n));
        tile = 0;
      }
      FinishKeys(s, p, scores, n, tile, key_at);
    }
    shared_.value_ring.WaitFull(at);
    TakeTurn();
    ptx::wgmma_fence();
    MultiplyValues(o, p, at);
    ptx::wgmma_commit();
    PassTurn();
    ptx::wgmma_wait<0>();
    Pin(o);
    StoreOut(o, shared_.WorkAt(n));
  }

 private:
  __device__ __forceinline__ void TakeTurn() {
    ptx::named_barrier_wait(1 + group_, kConsumers * kWarpgroup);
  }
  __device__ __forceinline__ void PassTurn() {
    ptx::named_barrier_arrive(1 + (group_ + 1) % kConsumers, kConsumers * kWarpgroup);
  }

  __device__ __forceinline__ int Head(const Work& work) const {
    return work.head + group_ % params_.work_heads;
  }
  // The warpgroup's first row within the row block.
  __device__ __forceinline__ int FirstRow() const {
    return group_ / params_.work_heads * kWarpgroupRows;
  }
  static __device__ __forceinline__ float ScaleOf(const KeyValueSource& source, int kv_head) {
    return source.scale == nullptr ? 1.0f : source.scale[kv_head * source.scale_stride];
  }
  __device__ __forceinline__ auto StartScores(const Work& work) const {
    return typename Traits::Scores(params_.gate, Head(work), ScaleOf(params_.key, work.kv_head));
  }

  // Both keep the compiler from seeing through: o is the tensor cores' until the wait.
  __device__ __forceinline__ void Pin(float (&o)[kParts][kPartDim / 2]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::wgmma_pin(o[part]);
  }
  __device__ __forceinline__ void Clear(float (&o)[kParts][kPartDim / 2]) {
#pragma unroll
    for (int i = 0; i < Traits::kHeadDim / 2; ++i) o[i / (kPartDim / 2)][i % (kPartDim / 2)] = 0.0f;
  }

  // S = Q K^T, both K-major: a step is 16 elements of the head, 32 bytes within a line.
  __device__ __forceinline__ void MultiplyKeys(float (&s)[kScores], uint32_t n,
                                               typename Ring::Position at) {
    constexpr uint32_t kQueryLineBytes = kWarpgroupRows * kLine * sizeof(T);
    const int slot = RingPosition<Traits::kQuerySlots>{n}.Slot();
    const uint64_t query = ptx::wgmma_descriptor(shared_.query[slot][group_], 0, 1024);
    const uint64_t key = ptx::wgmma_descriptor(shared_.key[at.Slot()], 0, 1024);
#pragma unroll
    for (int step = 0; step < Traits::kHeadDim / 16; ++step) {
      ptx::wgmma<0, T>(s, ptx::wgmma_advance(query, step / 4 * kQueryLineBytes + step % 4 * 32),
                       ptx::wgmma_advance(key, step / 4 * kTileLineBytes + step % 4 * 32),
                       step > 0);
    }
  }

  // O += P V. V is N-major (the head runs along its lines); a step is 16 keys.
  __device__ __forceinline__ void MultiplyValues(float (&o)[kParts][kPartDim / 2],
                                                 const uint32_t (&p)[kScores / 8][4],
                                                 typename Ring::Position at) {
    const uint64_t value = ptx::wgmma_descriptor(shared_.value[at.Slot()], kTileLineBytes, 1024);
#pragma unroll
    for (int step = 0; step < kScores / 8; ++step) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        ptx::wgmma<1, T>(o[part], p[step],
                         ptx::wgmma_advance(value, step * 16 * kLine * sizeof(T) +
                                                       part * (kPartDim / kLine) * kTileLineBytes),
                         true);
      }
    }
  }

  // Waits for the scores of tile `tile` of work `n` and turns them into A fragments of p.
  __device__ __forceinline__ void FinishKeys(float (&s)[kScores], uint32_t (&p)[kScores / 8][4],
                                             typename Traits::Scores& scores, uint32_t n, int tile,
                                             typename Ring::Position at) {
    const Work& work = shared_.WorkAt(n);
    ptx::wgmma_wait<0>();
    shared_.key_ring.Release(at);
    if (tile + 1 == work.tiles) shared_.query_ring.Release({n});
    ptx::wgmma_pin(s);
    scores.Apply(s);
    const int first_key = tile * Traits::kTileKeys;
    const int first_row =
        work.block.position + FirstRow() + threadIdx.x % kWarpgroup / 32 * 16;  // of the warp
    if (first_key + Traits::kTileKeys > first_row + 1) {
      const int seen = first_row + threadIdx.x % 32 / 4 + 1 - first_key;
      MaskScores<Traits::kRun>(s, {seen, seen + 8});
    }
    PackScores<T>(s, p);
  }

  // Output rows go through the warp's own 16 lines of shared memory, 64 columns at a time, to leave
  // as 16-byte stores.
  __device__ __forceinline__ void StoreOut(const float (&o)[kParts][kPartDim / 2],
                                           const Work& work) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x % kWarpgroup / 32;
    const int head = Head(work);
    const float gamma = params_.gate.gamma[head] * ScaleOf(params_.value, work.kv_head);
    const int first_row = FirstRow() + warp * 16;
    T* lines = shared_.out[group_ * 4 + warp];
    T* out = static_cast<T*>(params_.out) + head * params_.out_head_stride +
             (work.block.token + first_row) * params_.out_token_stride;
#pragma unroll
    for (int line = 0; line < Traits::kLines; ++line) {
      __syncwarp();
#pragma unroll
      for (int chunk = 0; chunk < 8; chunk += 2) {  // of 8 columns
        const float* x = &o[line / 2][(line % 2 * 8 + chunk) * 4];
        const int row = lane % 16;
        ptx::store_matrix_x4(lines + row * kLine + ((chunk + lane / 16) ^ (row & 7)) * 8,
                             PackPair<T>(gamma * x[0], gamma * x[1]),
                             PackPair<T>(gamma * x[2], gamma * x[3]),
                             PackPair<T>(gamma * x[4], gamma * x[5]),
                             PackPair<T>(gamma * x[6], gamma * x[7]));
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 4 * i + lane / 8;
        const int chunk = lane % 8;
        if (first_row + row >= work.block.rows) continue;
        *reinterpret_cast<uint4*>(out + row * params_.out_token_stride + line * kLine + chunk * 8) =
            *reinterpret_cast<const uint4*>(lines + row * kLine + (chunk ^ (row & 7)) * 8);
      }
    }
  }

  const Params& params_;
  Shared<Traits>& shared_;
  const int group_;
};

}  // namespace asynct::prefill_wgmma
