/* request_internal.h - private to compile/: what the checks and the content key share. */
#ifndef MW_REQUEST_INTERNAL_H
#define MW_REQUEST_INTERNAL_H

#include <millwright/request.h>

/* The request's files in the order of their names, '/' before every other byte, so that what lies
 * below a directory follows it at once. *out is malloc'ed; free it. Returns 0 or -ENOMEM. */
int mw_request_files_sort(const struct mw_compile_request *request,
                          const struct mw_source_file ***out);

#endif
