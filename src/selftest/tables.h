// The tables of rungs: one a subject, and those that every model shares.
#pragma once

#include "selftest/rung.h"

namespace patina {

Rungs product_rungs();    // the frozen product
Rungs rule_rungs();       // optimizers, clipping, the learning rate, LoKr's factors
Rungs attention_rungs();  // attention
Rungs adapter_rungs();    // any model: what an adapter is, and what its files hold
Rungs training_rungs();   // any model: gradients, batches, recompute, the trainer
Rungs lm_rungs();         // the language model's own
Rungs dit_rungs();        // the diffusion transformer's own

}  // namespace patina
