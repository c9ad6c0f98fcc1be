// A consumer warpgroup: 64 query rows of one head against all their key tiles.
#pragma once

#include "asynct/ptx/matrix.cuh"
#include "asynct/ptx/tma.cuh"
#include "asynct/ptx/warpgroup.cuh"
#include "asynct/ptx/wgmma.cuh"
#include "wgmma_shared.cuh"

namespace asynct::prefill_wgmma {

// The products with the keys of one tile and with the values of the tile before go out together,
// and the gate of the first runs under the second; this goes on from one work to the next. The two
// warpgroups issue their products in turn, so that one's gate also runs under the other's products.
template <class Traits>
class Consumer {
  using T = typename Traits::Element;
  using Position = RingPosition<Traits::kStages>;
  static constexpr int kScores = Traits::kTileKeys / 2;  // of a thread, in two rows
  static constexpr uint32_t kTileLineBytes = Traits::kTileKeys * kLine * sizeof(T);
  static constexpr int kPartDim = Traits::kHeadDim < 128 ? Traits::kHeadDim : 128;
  static constexpr int kParts = Traits::kHeadDim / kPartDim;  // products that make an output row

  using Scores = float[kScores];
  using Weights = uint32_t[kScores / 8][4];  // p as A fragments
  using Output = float[kParts][kPartDim / 2];

 public:
  __device__ __forceinline__ Consumer(const Params& params, Shared<Traits>& shared, int group)
      : params_(params),
        shared_(shared),
        group_(group),
        group_head_(group % params.work_heads),
        group_row_(group / params.work_heads * kWarpgroupRows) {}

  __device__ __forceinline__ void Run() {
    if (group_ == kConsumers - 1) PassTurn();  // the first turn, to the first warpgroup
    uint32_t n = 0;  // the work's number
    int tiles = shared_.WaitWork(n).tiles;
    if (tiles == 0) return;
    auto gate = StartGate(n);
    int row = FirstPosition(n);
    Output o;
    Scores s;
    Weights p;
    Clear(o);

    shared_.query_ring.WaitFull({0});
    shared_.key_ring.WaitFull({0});
    TakeTurn();
    MultiplyKeys(s, 0, {0});
    PassTurn();
    ptx::wgmma_wait<0>();
    FinishKeys(s, gate, n, 0, tiles, row, {0});
    PackScores<T>(s, p);

    int tile = 0;
    Position at;  // of the values
    for (;; ++at.count) {
      const bool ends = ++tile == tiles;
      if (ends) {
        tiles = shared_.WaitWork(n + 1).tiles;
        if (tiles == 0) break;
        shared_.query_ring.WaitFull({n + 1});
      }
      const Position key_at{at.count + 1};
      shared_.key_ring.WaitFull(key_at);
      shared_.value_ring.WaitFull(at);
      TakeTurn();
      MultiplyKeys(s, ends ? n + 1 : n, key_at);
      MultiplyValues(o, p, at);
      PassTurn();
      if (ends) {
        gate = StartGate(++n);
        row = FirstPosition(n);
        tile = 0;
      }
      ptx::wgmma_wait<1>();
      FinishKeys(s, gate, n, tile, tiles, row, key_at);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(s);
      Pin(o);
      shared_.value_ring.Release(at);
      if (ends) {
        StoreOut(o, shared_.WorkAt(n - 1));
        Clear(o);
        shared_.work_ring.Release({n - 1});
      }
      PackScores<T>(s, p);
    }
    shared_.value_ring.WaitFull(at);
    TakeTurn();
    MultiplyValues(o, p, at);
    PassTurn();
    ptx::wgmma_wait<0>();
    Pin(o);
    StoreOut(o, shared_.WorkAt(n));
  }

 private:
  // Waits for the turn to issue products. The first fence is for what the producers have copied:
  // the tensor cores see shared memory in another way than they do.
  __device__ __forceinline__ void TakeTurn() {
    ptx::fence_shared_stores();
    ptx::named_barrier_wait(1 + group_, kConsumers * kWarpgroup);
    ptx::wgmma_fence();
  }
  __device__ __forceinline__ void PassTurn() {
    ptx::named_barrier_arrive(1 + (group_ + 1) % kConsumers, kConsumers * kWarpgroup);
  }

  // The position of the thread's first row in work n.
  __device__ __forceinline__ int FirstPosition(uint32_t n) {
    return shared_.WorkAt(n).block.position + group_row_ + threadIdx.x % kWarpgroup / 32 * 16 +
           threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ auto StartGate(uint32_t n) {
    const Work& work = shared_.WorkAt(n);
    return typename Traits::Gate(params_.gate, work.head + group_head_,
                                 ScaleOf(params_.key, work.kv_head));
  }
  static __device__ __forceinline__ float ScaleOf(const KeyValueSource& source, int kv_head) {
    return source.scale == nullptr ? 1.0f : source.scale[kv_head * source.scale_stride];
  }

  __device__ __forceinline__ void Pin(Output& o) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::wgmma_pin(o[part]);
  }
  __device__ __forceinline__ void Clear(Output& o) {
#pragma unroll
    for (int i = 0; i < Traits::kHeadDim / 2; ++i) o[i / (kPartDim / 2)][i % (kPartDim / 2)] = 0.0f;
  }

  // S = Q K^T, both K-major: a step is 16 elements of the head, 32 bytes within a line.
  __device__ __forceinline__ void MultiplyKeys(Scores& s, uint32_t n, Position at) {
    constexpr uint32_t kQueryLineBytes = kWarpgroupRows * kLine * sizeof(T);
    auto* rows = shared_.query[RingPosition<Traits::kQuerySlots>{n}.Slot()][group_];
    // Where registers are short, descriptors are made anew for each tile.
    if constexpr (Traits::kHeadDim > 128) asm volatile("" : "+l"(rows));
    const uint64_t query = ptx::wgmma_descriptor(rows, 0, 1024);
    const uint64_t key = ptx::wgmma_descriptor(shared_.key[at.Slot()], 0, 1024);
#pragma unroll
    for (int step = 0; step < Traits::kHeadDim / 16; ++step) {
      ptx::wgmma<0, T>(s, ptx::wgmma_advance(query, step / 4 * kQueryLineBytes + step % 4 * 32),
                       ptx::wgmma_advance(key, step / 4 * kTileLineBytes + step % 4 * 32),
                       step > 0);
    }
    ptx::wgmma_commit();
  }

  // O += P V. V is N-major (the head runs along its lines); a step is 16 keys.
  __device__ __forceinline__ void MultiplyValues(Output& o, const Weights& p, Position at) {
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
    ptx::wgmma_commit();
  }

  // Turns the scores of a tile, which are there, into p.
  __device__ __forceinline__ void FinishKeys(Scores& s, typename Traits::Gate& gate, uint32_t n,
                                             int tile, int tiles, int row, Position at) {
    ptx::wgmma_pin(s);
    shared_.key_ring.Release(at);
    if (tile + 1 == tiles) shared_.query_ring.Release({n});
    gate.Apply(s);
    const int seen = row + 1 - tile * Traits::kTileKeys;
    const int seen_by_first = seen - static_cast<int>(threadIdx.x % 32 / 4);  // row of the warp
    if (seen_by_first < Traits::kTileKeys) MaskScores<Traits::kRun>(s, {seen, seen + 8});
  }

  // Output rows go through the warp's own 16 lines of shared memory, 64 columns at a time, to leave
  // as 16-byte stores.
  __device__ __forceinline__ void StoreOut(const Output& o, const Work& work) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x % kWarpgroup / 32;
    const int head = work.head + group_head_;
    const float gamma = params_.gate.gamma[head] * ScaleOf(params_.value, work.kv_head);
    const int first_row = group_row_ + warp * 16;
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
  const int group_head_;  // its query head within the work
  const int group_row_;   // its first row within the row block
};

}  // namespace asynct::prefill_wgmma
