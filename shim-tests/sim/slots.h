/* Included first by every file of the simulated driver: the functions through which the driver's buffer
 * passes are ordinary calls, each with one R_X86_64_JUMP_SLOT @GLIBC_2.2.5, as in the real library. Without
 * the directive a current glibc would bind memcpy@GLIBC_2.14; the others have had only the old version. */
#ifndef SLOTS_H
#define SLOTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
__asm__(".symver memcpy,memcpy@GLIBC_2.2.5");
#endif

#define EXPORT __attribute__((visibility("default")))

#endif
