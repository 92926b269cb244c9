#include <torchcomms/types.hpp>

#include <array>
#include <functional>

#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

constexpr std::array<std::string_view, kOpNameCount> kOpNames = {
    "send",
    "recv",
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "all_gather_v",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_v",
    "reduce_scatter_single",
    "all_to_all_single",
    "all_to_all_v_single",
    "all_to_all",
    "barrier",
    "scatter",
    "gather",
    "gather_single",
    "split",
    "new_window",
    "batch_op_issue",
    "finalize",
};
constexpr std::array<std::string_view, 5> kStatusNames = {"NOT_STARTED", "INPROGRESS", "COMPLETED",
                                                          "TIMEDOUT", "ERROR"};
constexpr std::array<std::string_view, 9> kReduceNames = {
    "SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM", "AVG"};

}  // namespace

std::string_view opToString(OpName name) noexcept { return kOpNames.at(static_cast<size_t>(name)); }
std::string_view toString(WorkStatus status) noexcept {
  return kStatusNames.at(static_cast<size_t>(status));
}
std::string_view toString(RedOpType type) noexcept {
  return kReduceNames.at(static_cast<size_t>(type));
}

ReduceOp::ReduceOp(RedOpType type) : type_(type) {
  if (type == RedOpType::PREMUL_SUM)
    throw CommError(Errc::kInvalidArgument,
                    "ReduceOp(PREMUL_SUM) has no factor: use ReduceOp.PREMUL_SUM(factor)");
}

ReduceOp ReduceOp::make_nccl_premul_sum(PreMulSumFactorT factor) {
  if (const auto* tensor = std::get_if<at::Tensor>(&factor); tensor && !tensor->defined())
    throw CommError(Errc::kInvalidArgument, "PREMUL_SUM: the factor is an undefined tensor");
  return {RedOpType::PREMUL_SUM, std::move(factor)};
}

bool ReduceOp::operator==(const ReduceOp& other) const noexcept {
  if (type_ != other.type_) return false;
  if (type_ != RedOpType::PREMUL_SUM) return true;
  if (factor_.index() != other.factor_.index()) return false;
  if (const auto* number = std::get_if<double>(&factor_))
    return *number == std::get<double>(other.factor_);
  return std::get<at::Tensor>(factor_).is_same(std::get<at::Tensor>(other.factor_));
}

size_t ReduceOp::hash() const noexcept {
  size_t value = static_cast<size_t>(type_);
  if (type_ == RedOpType::PREMUL_SUM) {
    if (const auto* number = std::get_if<double>(&factor_))
      value ^= std::hash<double>{}(*number) << 4;
    else
      value ^= std::hash<const void*>{}(std::get<at::Tensor>(factor_).unsafeGetTensorImpl()) << 4;
  }
  return value;
}

const ReduceOp ReduceOp::SUM{RedOpType::SUM};
const ReduceOp ReduceOp::PRODUCT{RedOpType::PRODUCT};
const ReduceOp ReduceOp::MIN{RedOpType::MIN};
const ReduceOp ReduceOp::MAX{RedOpType::MAX};
const ReduceOp ReduceOp::BAND{RedOpType::BAND};
const ReduceOp ReduceOp::BOR{RedOpType::BOR};
const ReduceOp ReduceOp::BXOR{RedOpType::BXOR};
const ReduceOp ReduceOp::AVG{RedOpType::AVG};

}  // namespace torch::comms
