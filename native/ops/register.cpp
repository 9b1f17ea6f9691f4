// All operators, as ONNX Runtime hears of them, and what else can be asked of the library.
#include "loops.hpp"
#include "operators/attention.hpp"
#include "operators/best.hpp"
#include "operators/products.hpp"
#include "operators/rows.hpp"
#include "runtime.hpp"
#include "team.hpp"

namespace dragoman {
namespace {

template <class Kernel>
void add(const OrtApi* api, OrtDomain* domain) {
  static const Operator<Kernel> instance;
  check(api, Call::kAddToDomain, static_cast<OrtStatus* (*)(OrtDomain*, const OrtCustomOp*)>(nullptr), domain,
        static_cast<const OrtCustomOp*>(&instance));
}

void add_all(const OrtApi* api, OrtSessionOptions* options) {
  OrtDomain* domain = nullptr;  // ONNX Runtime's sessions refer to it for as long as they live: it is never released
  check(api, Call::kCreateDomain, static_cast<OrtStatus* (*)(const char*, OrtDomain**)>(nullptr), "dragoman", &domain);
  add<SourceAttention>(api, domain);
  add<StepAttention>(api, domain);
  add<CrossAttention>(api, domain);
  add<AddNorm>(api, domain);
  add<Silu>(api, domain);
  add<Linear>(api, domain);
  add<FloatLinear>(api, domain);
  add<Embed>(api, domain);
  add<FloatEmbed>(api, domain);
  add<BestOutputs>(api, domain);
  add<FloatBestOutputs>(api, domain);
  check(api, Call::kAddDomain, static_cast<OrtStatus* (*)(OrtSessionOptions*, OrtDomain*)>(nullptr), options, domain);
}

struct OrtApiBase {
  const OrtApi* (*api)(std::uint32_t);
  const char* (*version)();
};

}  // namespace
}  // namespace dragoman

#define DRAGOMAN_PUBLIC extern "C" __attribute__((visibility("default")))

// The one name that ONNX Runtime looks for.
DRAGOMAN_PUBLIC dragoman::OrtStatus* RegisterCustomOps(
    dragoman::OrtSessionOptions* options, const dragoman::OrtApiBase* base) {
  const dragoman::OrtApi* api = base->api(dragoman::kApiVersion);
  try {
    dragoman::add_all(api, options);
    return nullptr;
  } catch (const std::exception& error) {
    return dragoman::failure(api, error.what());
  }
}

// For who loads the library by itself.
DRAGOMAN_PUBLIC const char* dragoman_processor() { return dragoman::loops().processor; }
DRAGOMAN_PUBLIC void dragoman_resize_team(int threads) { dragoman::Team::instance().resize(threads); }
DRAGOMAN_PUBLIC void dragoman_begin_turn() { dragoman::Team::instance().begin_turn(); }
DRAGOMAN_PUBLIC void dragoman_end_turn() { dragoman::Team::instance().end_turn(); }
