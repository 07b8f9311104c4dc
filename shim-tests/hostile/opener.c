/* Preloaded: changes how the program loads libcuda, as programs and plug-in hosts do. OPENER is `deepbind` (RTLD_DEEPBIND),
 * `namespace` (dlmopen, without the shim), `shimmed-namespace` (dlmopen, a second copy of the shim first), or `second` (another
 * libcuda from OPENER_LIBRARY beside it). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void *shimmed_namespace(const char *name, int flags)
{
    Lmid_t space;
    void *shim = dlmopen(LM_ID_NEWLM, getenv("OPENER_LIBRARY"), RTLD_NOW);
    if (!shim || dlinfo(shim, RTLD_DI_LMID, &space) != 0)
        return NULL;
    return dlmopen(space, name, flags & ~RTLD_GLOBAL);
}

void *dlopen(const char *name, int flags)
{
    void *(*next)(const char *, int);
    const char *how = getenv("OPENER");
    *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    if (!how || !name || strcmp(name, "libcuda.so.1") != 0)
        return next(name, flags);
    if (strcmp(how, "deepbind") == 0)
        return next(name, flags | RTLD_DEEPBIND);
    if (strcmp(how, "namespace") == 0)
        return dlmopen(LM_ID_NEWLM, name, flags & ~RTLD_GLOBAL);
    if (strcmp(how, "shimmed-namespace") == 0)
        return shimmed_namespace(name, flags);
    void *first = next(name, flags);
    return next(getenv("OPENER_LIBRARY"), RTLD_NOW) ? first : NULL;
}
