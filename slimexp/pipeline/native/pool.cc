#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace slimexp {
namespace {

struct Batch {
  int64_t count;
  std::function<void(Decoder&, int64_t)> make;
  std::function<void()> done;
  int64_t next = 0;  // Under the pool's mutex.
  std::atomic<int64_t> left;
};

int64_t Nanoseconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{1000000000} * time.tv_sec + time.tv_nsec;
}

void NameThread() {
#if defined(__APPLE__)
  pthread_setname_np("slimexp_prep");
#else
  pthread_setname_np(pthread_self(), "slimexp_prep");
#endif
}

// Never freed: at the end of the process a thread may still hold what it refers to.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<std::string, int>, std::weak_ptr<Pool>> pools;
};

Registry& Pools() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

struct Pool::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Batch>> batches;
  bool stopped = false;
  pid_t process = getpid();
  int threads = 0;
  std::atomic<int64_t> images{0}, cpu_ns{0}, wall_ns{0}, waiting{0};
};

Pool::Pool(std::shared_ptr<State> state) : state_(std::move(state)) {}

Pool::~Pool() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_all();
}

std::shared_ptr<Pool> Pool::Get(const std::string& name, int threads) {
  Registry& registry = Pools();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (auto at = registry.pools.begin(); at != registry.pools.end();) {
    at = at->second.expired() ? registry.pools.erase(at) : std::next(at);
  }
  std::weak_ptr<Pool>& slot = registry.pools[{name, threads}];
  if (std::shared_ptr<Pool> pool = slot.lock(); pool && pool->state_->process == getpid()) return pool;
  std::shared_ptr<Pool> pool(new Pool(std::make_shared<State>()));
  pool->state_->threads = threads;
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int i = 0; i < threads; ++i) std::thread(Work, pool->state_).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  slot = pool;
  return pool;
}

bool Pool::Stats(const std::string& name, PoolStats* stats) {
  *stats = {};
  bool found = false;
  Registry& registry = Pools();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [key, slot] : registry.pools) {
    std::shared_ptr<Pool> pool = key.first == name ? slot.lock() : nullptr;
    if (!pool) continue;
    const State& state = *pool->state_;
    stats->images += state.images.load(std::memory_order_relaxed);
    stats->cpu_ns += state.cpu_ns.load(std::memory_order_relaxed);
    stats->wall_ns += state.wall_ns.load(std::memory_order_relaxed);
    stats->waiting += state.waiting.load(std::memory_order_relaxed);
    stats->threads += state.threads;
    found = true;
  }
  return found;
}

bool Pool::Submit(int64_t count, std::function<void(Decoder&, int64_t)> make, std::function<void()> done) {
  if (state_->process != getpid()) return false;
  if (count == 0) {
    done();
    return true;
  }
  auto batch = std::make_shared<Batch>();
  batch->count = count;
  batch->make = std::move(make);
  batch->done = std::move(done);
  batch->left = count;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->batches.push_back(std::move(batch));
  }
  state_->changed.notify_all();
  return true;
}

void Pool::Work(std::shared_ptr<State> state) {
  NameThread();
  Decoder decoder;
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stopped || !state->batches.empty(); });
    if (state->batches.empty()) return;
    std::shared_ptr<Batch> batch = state->batches.front();
    const int64_t index = batch->next++;
    if (batch->next == batch->count) state->batches.pop_front();
    lock.unlock();

    const int64_t cpu = Nanoseconds(CLOCK_THREAD_CPUTIME_ID), wall = Nanoseconds(CLOCK_MONOTONIC);
    batch->make(decoder, index);
    state->cpu_ns.fetch_add(Nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu, std::memory_order_relaxed);
    state->wall_ns.fetch_add(Nanoseconds(CLOCK_MONOTONIC) - wall, std::memory_order_relaxed);
    state->images.fetch_add(1, std::memory_order_relaxed);
    state->waiting.fetch_add(1, std::memory_order_relaxed);
    if (batch->left.fetch_sub(1) == 1) {
      state->waiting.fetch_sub(batch->count, std::memory_order_relaxed);
      // What the batch refers to may be gone as soon as `done` has been called.
      batch->make = nullptr;
      std::function<void()> done = std::move(batch->done);
      done();
    }
    batch.reset();
    lock.lock();
  }
}

}  // namespace slimexp
