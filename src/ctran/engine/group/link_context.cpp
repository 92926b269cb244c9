#include "ctran/engine/group/link_context.hpp"

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"

namespace torch::comms::ctran {

std::shared_ptr<LinkContext> LinkContext::create(int rank, int size, const transport::Secret& job,
                                                 const AllGatherBlobs& exchange,
                                                 const LinkContextOptions& options) {
  LinkTable links(rank, size, job, options);
  links.set_addresses(exchange(links.serialize_address()));
  auto engine = std::make_shared<Engine>(std::move(links), options);
  std::shared_ptr<LinkContext> context(new LinkContext(std::move(engine)));
  context->engine_->open();
  return context;
}

LinkContext::LinkContext(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

LinkContext::~LinkContext() {
  if (engine_->is_forked()) {
    // Never destroyed: its resources belong to the parent, in an unknown state at the time of the
    // fork.
    static_cast<void>(new std::shared_ptr<Engine>(std::move(engine_)));
    return;
  }
  shut_down();
}

void LinkContext::shut_down() noexcept {
  break_off(
      CommError(Errc::kFinalized, "this process has closed the connections of the communicator"));
}

void LinkContext::break_off(const CommError& why) noexcept {
  if (!engine_->is_forked()) engine_->shut_down(why);
}

int LinkContext::rank() const noexcept { return engine_->link_table().rank(); }
int LinkContext::size() const noexcept { return engine_->link_table().size(); }
std::string_view LinkContext::link_name(int rank) const noexcept {
  return engine_->link_table().link_name(rank);
}
bool LinkContext::is_same_host(int a, int b) const noexcept {
  return engine_->link_table().is_same_host(a, b);
}
const transport::CoreSharing& LinkContext::most_oversubscribed_host() const noexcept {
  return engine_->link_table().most_oversubscribed_host();
}
std::string LinkContext::describe_links() const { return engine_->describe_links(); }
std::string LinkContext::describe_waiting() const {
  return engine_->link_table().describe_waiting();
}

}  // namespace torch::comms::ctran
