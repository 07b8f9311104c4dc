/* A library whose IFUNC resolver copies and maps, while libraries before it in the loader's list are not relocated yet: with a
 * preload that exported memcpy such programs crash before main. */
#include "early.h"

#include <stdint.h>

static const char *wrong = "the resolver did not run";

static const char *implementation(uint32_t *pid)
{
    *pid = 0;
    return wrong;
}

static const char *(*resolve(void))(uint32_t *)
{
    wrong = map_and_copy_early();
    return implementation;
}

__attribute__((ifunc("resolve"), visibility("hidden"))) const char *resolved(uint32_t *pid);

const char *early_report(uint32_t *pid)
{
    return resolved(pid);
}
