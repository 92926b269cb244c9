#include "schedule/catalogue.hpp"
#include "schedule/patterns/fold.hpp"

// Operations without arithmetic and without blocks: send, receive, barrier.
namespace torch::comms::schedule {
namespace {

int64_t one_step(const Problem&) { return 1; }

// After round k a rank has a signal, directly or not, from the 2^(k+1) - 1 ranks before it.
void dissemination_step(const Problem& p, int64_t t, Step& out) {
  out.signal(p.ring_neighbor(int64_t{1} << t));
  out.wait(p.ring_neighbor(-(int64_t{1} << t)));
}

}  // namespace

constinit const Algorithm kBarrierDissemination{
    .operation = Operation::kBarrier,
    .name = "dissemination",
    .summary = "in round k every rank signals the rank 2^k after it; any number of ranks",
    .source = "Hensgen, Finkel & Manber, Int. J. Parallel Program. 17(1), 1988",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return int64_t{ceil_log2(p.size)}; },
                  .step = dissemination_step,
                  .cost = [](const Problem& p) { return Cost{.messages = ceil_log2(p.size)}; }}};

constinit const Algorithm kBarrierDirect{
    .operation = Operation::kBarrier,
    .name = "direct",
    .summary = "every rank signals every rank in one step",
    .source = "no algorithm",
    .is_rotation_invariant = true,
    .functions = {.steps = one_step,
                  .step =
                      [](const Problem& p, int64_t, Step& out) {
                        for (int i = 1; i < p.size; ++i) out.signal(p.ring_neighbor(i));
                        for (int i = 1; i < p.size; ++i) out.wait(p.ring_neighbor(-i));
                      },
                  .cost = [](const Problem& p) { return Cost{.messages = p.size - 1}; }}};

constinit const Algorithm kSendDirect{
    .operation = Operation::kSend,
    .name = "direct",
    .summary = "one message to the peer",
    .source = "no algorithm",
    .functions = {.steps = one_step,
                  .step = [](const Problem& p, int64_t,
                             Step& out) { out.send(p.root, {Buffer::kInput, 0, p.count()}); },
                  .cost = [](const Problem& p) { return Cost{.messages = 1, .sent = p.count()}; }}};

constinit const Algorithm kReceiveDirect{
    .operation = Operation::kReceive,
    .name = "direct",
    .summary = "one message from the peer",
    .source = "no algorithm",
    .functions = {.steps = one_step,
                  .step = [](const Problem& p, int64_t,
                             Step& out) { out.receive(p.root, {Buffer::kOutput, 0, p.count()}); },
                  .cost = [](const Problem& p) { return Cost{.received = p.count()}; }}};

}  // namespace torch::comms::schedule
