// The functions that the library exports: ONNX Runtime calls the first, Python the others.
#include <memory>

#include "kernels.hpp"
#include "onnxruntime_api.hpp"
#include "operator.hpp"
#include "operators/attention.hpp"
#include "operators/best_tokens.hpp"
#include "operators/embedding.hpp"
#include "operators/forced.hpp"
#include "operators/linear.hpp"
#include "operators/norm.hpp"
#include "thread_pool.hpp"

namespace dragoman {
namespace {

template <class Kernel>
void add(const OrtApi& api, OrtCustomOpDomain* domain) {
  // Never destroyed: sessions refer to operators for as long as they live, which may be until the process ends.
  static const auto* const made = new Operator<Kernel>(api);
  check(api, api.CustomOpDomain_Add(domain, made));
}

template <class... Kernels>
void add_each(const OrtApi& api, OrtCustomOpDomain* domain) {
  (add<Kernels>(api, domain), ...);
}

void add_all(const OrtApi& api, OrtSessionOptions* options) {
  OrtCustomOpDomain* made = nullptr;
  check(api, api.CreateCustomOpDomain("dragoman", &made));
  std::unique_ptr<OrtCustomOpDomain, void (*)(OrtCustomOpDomain*)> domain(made, api.ReleaseCustomOpDomain);
  add_each<SourceAttention, StepAttention, CrossAttention>(api, made);
  add_each<TargetAttention, AlignedAttention>(api, made);
  add_each<Norm, AddNorm>(api, made);
  add_each<Linear, FloatLinear, GatedLinear, FloatGatedLinear>(api, made);
  add_each<Embed, FloatEmbed>(api, made);
  add_each<BestOutputs, FloatBestOutputs>(api, made);
  check(api, api.AddCustomOpDomain(options, made));
  static_cast<void>(domain.release());  // sessions refer to the domain, too
}

}  // namespace
}  // namespace dragoman

#define DRAGOMAN_PUBLIC extern "C" __attribute__((visibility("default")))

// The one name that ONNX Runtime looks for.
DRAGOMAN_PUBLIC dragoman::OrtStatus* RegisterCustomOps(dragoman::OrtSessionOptions* options,
                                                       const dragoman::OrtApiBase* base) noexcept {
  const dragoman::OrtApi* api = base->GetApi(dragoman::kOrtApiVersion);
  if (api == nullptr) {  // too old; the first version can make an error
    const dragoman::OrtApi* first = base->GetApi(1);
    return first->CreateStatus(dragoman::OrtErrorCode::kFail, "dragoman's operators need ONNX Runtime 1.18 or later");
  }
  return dragoman::guarded(*api, "dragoman", [&] { dragoman::add_all(*api, options); });
}

// The instruction set that the kernels use here.
DRAGOMAN_PUBLIC const char* dragoman_processor() noexcept { return dragoman::kernels().processor; }

// 0, or -1 if so many threads can't be started.
DRAGOMAN_PUBLIC int dragoman_pool_resize(int threads) noexcept {
  try {
    dragoman::ThreadPool::instance().resize(threads);
    return 0;
  } catch (...) {
    return -1;
  }
}

DRAGOMAN_PUBLIC void dragoman_pool_enter() noexcept { dragoman::ThreadPool::instance().enter(); }
DRAGOMAN_PUBLIC void dragoman_pool_leave() noexcept { dragoman::ThreadPool::instance().leave(); }
