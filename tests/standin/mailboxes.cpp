#include "standin/mailboxes.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <map>

#include "standin/plan.hpp"

namespace torch::comms::standin {
namespace {

constexpr size_t kBoxBytes = 256 << 10;  // what fits is sent before it is received
constexpr int64_t kMaxWaitUs = 20000;    // between two looks at the stop flag

using Clock = std::chrono::steady_clock;

struct Header {
  uint64_t kind;
  uint64_t size_bytes;
};

struct Box {
  std::atomic<uint64_t> written, read;  // bytes since the beginning
  std::atomic<uint64_t> signals;
  char bytes[kBoxBytes];
};

void wait_on(std::atomic<uint32_t>& word, uint32_t seen, int64_t limit_us) {
  const timespec limit{limit_us / 1000000, (limit_us % 1000000) * 1000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// Begins as zeros, which is a right state.
struct Mailboxes::Block {
  std::atomic<uint32_t> change_count;  // grows with everything that happens
  std::atomic<uint32_t> joined;        // ranks
  std::atomic<bool> mismatched;        // some rank has seen that they disagree
  std::atomic<uint32_t> aborts;        // of ranks
  Box boxes[1];                        // size * size of them: [from * size + to]
};

struct Mailboxes::Cursor {
  Transfer transfer;
  Header header;  // ours, or as it arrives
  size_t done = 0;
  bool is_stuck = false;

  size_t left() const { return sizeof(Header) + transfer.size_bytes - done; }
  // What comes next: a piece of the header or of the data.
  std::pair<char*, size_t> piece() {
    if (done < sizeof(Header))
      return {reinterpret_cast<char*>(&header) + done, sizeof(Header) - done};
    return {static_cast<char*>(transfer.data) + (done - sizeof(Header)), left()};
  }
};

std::unique_ptr<Mailboxes> Mailboxes::join(const std::string& name, int rank, int size,
                                           const std::atomic<bool>& stop) {
  const size_t size_bytes =
      sizeof(Block) + sizeof(Box) * static_cast<size_t>(size) * static_cast<size_t>(size);
  const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* at = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(size_bytes)) == 0)
    at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) return nullptr;
  std::unique_ptr<Mailboxes> boxes(
      new Mailboxes(name, rank, size, static_cast<Block*>(at), size_bytes));
  auto& block = *boxes->block_;
  if (block.joined.fetch_add(1) + 1 == static_cast<uint32_t>(size)) ::shm_unlink(name.c_str());
  wake_all(block.change_count);
  while (true) {
    const uint32_t seen = block.change_count.load();
    if (block.joined.load() == static_cast<uint32_t>(size)) return boxes;
    if (stop.load()) {
      ::shm_unlink(name.c_str());
      return nullptr;
    }
    wait_on(block.change_count, seen, kMaxWaitUs);
  }
}

Mailboxes::Mailboxes(std::string name, int rank, int size, Block* block, size_t size_bytes)
    : name_(std::move(name)), rank_(rank), size_(size), block_(block), size_bytes_(size_bytes) {}

Mailboxes::~Mailboxes() { ::munmap(block_, size_bytes_); }

bool Mailboxes::step(Cursor& cursor, bool& mismatch) {
  const auto& transfer = cursor.transfer;
  const int from = transfer.sends ? rank_ : transfer.peer;
  const int to = transfer.sends ? transfer.peer : rank_;
  auto& box = block_->boxes[from * size_ + to];
  bool moved = false;
  while (cursor.left() > 0 && !cursor.is_stuck) {
    const uint64_t written = box.written.load(), read = box.read.load();
    const uint64_t at = transfer.sends ? written : read;
    const size_t room = transfer.sends ? kBoxBytes - (written - read) : written - read;
    const auto [data, size] = cursor.piece();
    const size_t count = std::min({size, room, kBoxBytes - at % kBoxBytes});
    if (count == 0) return moved;
    char* inside = box.bytes + at % kBoxBytes;
    if (transfer.sends) {
      std::memcpy(inside, data, count);
      box.written.store(at + count);
    } else {
      std::memcpy(data, inside, count);
      box.read.store(at + count);
    }
    cursor.done += count;
    moved = true;
    if (!transfer.sends && cursor.done == sizeof(Header) &&
        (cursor.header.kind != transfer.kind || cursor.header.size_bytes != transfer.size_bytes)) {
      cursor.is_stuck = is_blind();
      mismatch = !cursor.is_stuck;
      return moved;
    }
  }
  return moved;
}

Mailboxes::End Mailboxes::run(std::span<const Transfer> transfers, const std::atomic<bool>& stop) {
  const uint32_t aborts = block_->aborts.load();
  // By peer and direction, the first that is not done at the end.
  std::map<std::pair<int, bool>, std::vector<Cursor>> lines;
  for (auto at = transfers.rbegin(); at != transfers.rend(); ++at)
    lines[{at->peer, at->sends}].push_back({*at, {at->kind, at->size_bytes}});
  while (!lines.empty()) {
    const uint32_t seen = block_->change_count.load();
    bool moved = false, mismatch = false;
    for (auto line = lines.begin(); line != lines.end();) {
      auto& cursors = line->second;
      moved = step(cursors.back(), mismatch) || moved;
      if (mismatch) {
        block_->mismatched.store(true);
        wake_all(block_->change_count);
      }
      if (block_->mismatched.load()) return End::kMismatch;
      if (cursors.back().left() == 0) cursors.pop_back();
      line = cursors.empty() ? lines.erase(line) : std::next(line);
    }
    if (stop.load()) return End::kStopped;
    if (moved)
      wake_all(block_->change_count);
    else if (block_->aborts.load() != aborts)
      return End::kDone;
    else
      wait_on(block_->change_count, seen, kMaxWaitUs);
  }
  return End::kDone;
}

void Mailboxes::signal(int peer) {
  block_->boxes[rank_ * size_ + peer].signals.fetch_add(1);
  wake_all(block_->change_count);
}

Mailboxes::End Mailboxes::await_signals(int peer, uint64_t total, const std::atomic<bool>& stop) {
  const uint32_t aborts = block_->aborts.load();
  const auto& box = block_->boxes[peer * size_ + rank_];
  while (true) {
    const uint32_t seen = block_->change_count.load();
    if (box.signals.load() >= total || block_->aborts.load() != aborts) return End::kDone;
    if (stop.load()) return End::kStopped;
    wait_on(block_->change_count, seen, kMaxWaitUs);
  }
}

void Mailboxes::sleep(int64_t limit_us, const std::atomic<bool>& stop) {
  const auto end = Clock::now() + std::chrono::microseconds(limit_us);
  while (!stop.load()) {
    const uint32_t seen = block_->change_count.load();
    int64_t left = kMaxWaitUs;
    if (limit_us >= 0) {
      left = std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now()).count();
      if (left <= 0) return;
    }
    if (!stop.load()) wait_on(block_->change_count, seen, std::min(left, kMaxWaitUs));
  }
}

bool Mailboxes::is_abandoned() const { return block_->aborts.load() != 0; }

void Mailboxes::abandon() {
  block_->aborts.fetch_add(1);
  wake_all(block_->change_count);
}

}  // namespace torch::comms::standin
