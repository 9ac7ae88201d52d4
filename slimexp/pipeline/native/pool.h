// Threads that make the images of several batches, the oldest batch first.
#ifndef SLIMEXP_POOL_H_
#define SLIMEXP_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "decoder.h"

namespace slimexp {

// What a pool did since it began.
struct PoolStats {
  int64_t images;   // Finished.
  int64_t cpu_ns;   // Of processor time that making them took, summed over the threads.
  int64_t wall_ns;  // The same as time passed: the difference is spent waiting for a processor core.
  int64_t waiting;  // Finished images of batches that are not finished yet.
  int64_t threads;
};

class Pool {
 public:
  // Returns the pool of that name and number of threads; it is started if there is none, and ends when the last one
  // who holds it lets it go. Throws std::system_error if the system has no threads left.
  static std::shared_ptr<Pool> Get(const std::string& name, int threads);

  // Sums over the pools of that name; false if there is none.
  static bool Stats(const std::string& name, PoolStats* stats);

  ~Pool();

  // Calls `make` with 0 to count - 1, each on one of the threads, and `done` on the last of them. Older submissions
  // come first. False, with nothing called, in a process forked from the pool's: it has none of its threads.
  bool Submit(int64_t count, std::function<void(Decoder&, int64_t)> make, std::function<void()> done);

 private:
  struct State;
  explicit Pool(std::shared_ptr<State> state);
  static void Work(std::shared_ptr<State> state);

  // The threads hold it too. They are not waited for: the last one who holds the pool may be one of them.
  std::shared_ptr<State> state_;
};

}  // namespace slimexp

#endif  // SLIMEXP_POOL_H_
