#include "ctran/engine/family.hpp"

#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"

namespace torch::comms::ctran {

std::shared_ptr<Family> Family::make(int rank, int size, const transport::Secret& job,
                                     const Exchange& exchange, const FamilyOptions& options) {
  LinkTable links(rank, size, job, options);
  links.learn(exchange(links.blob()));
  auto engine = std::make_shared<Engine>(std::move(links), options);
  std::shared_ptr<Family> family(new Family(std::move(engine)));
  family->engine_->open();
  return family;
}

Family::Family(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

Family::~Family() {
  if (engine_->forked()) {
    // Never destroyed: what it has is the parent's, in whatever state the fork met it.
    static_cast<void>(new std::shared_ptr<Engine>(std::move(engine_)));
    return;
  }
  break_off();
}

void Family::break_off() noexcept {
  break_off(CommError(Errc::kFinalized, "the links were closed"));
}

void Family::break_off(const CommError& why) noexcept {
  if (!engine_->forked()) engine_->shut_down(why);
}

int Family::rank() const noexcept { return engine_->table().rank(); }
int Family::size() const noexcept { return engine_->table().size(); }
std::string_view Family::link_to(int rank) const noexcept { return engine_->table().name(rank); }
bool Family::same_host(int a, int b) const noexcept { return engine_->table().same_host(a, b); }
const transport::CoreSharing& Family::densest() const noexcept {
  return engine_->table().densest();
}
std::string Family::carriers() const { return engine_->carriers(); }
std::string Family::waits() const { return engine_->table().waits(); }

}  // namespace torch::comms::ctran
