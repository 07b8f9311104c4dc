/* Prototypes of the exports, and what their bodies share. */
#ifndef DRIVER_API_H
#define DRIVER_API_H

#include "driver.h"

#define DECLARE(name, parameters) EXPORT CUresult name parameters;
CUDA_API(DECLARE)
#undef DECLARE

/* Between these: not locked by a checkpointer, and alone in the driver's tables. */
CUresult api_enter(void);
CUresult api_leave(CUresult rc);

#endif
