/* request_internal.h - private to compile/: what the checks and the content key share. */
#ifndef MW_REQUEST_INTERNAL_H
#define MW_REQUEST_INTERNAL_H

#include <millwright/request.h>

/* The request's files in the order of their names, '/' before every other byte, so that what lies
 * below a directory follows it at once. *out is malloc'ed; free it. Returns 0 or -ENOMEM. */
int mw_request_files_sort(const struct mw_compile_request *request,
                          const struct mw_source_file ***out);

/* The place of the first of such a list whose name does not come before `name`: that of the file,
 * or of the first below a directory of that name, where there is one. */
size_t mw_request_files_place(const struct mw_source_file *const *files, size_t count,
                              const char *name);

#endif
