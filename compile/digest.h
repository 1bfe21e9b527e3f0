/* digest.h - hashes of whole texts, as lower-case hexadecimal text.
 *
 * Threads: any thread; nothing blocks. */
#ifndef MILLWRIGHT_DIGEST_H
#define MILLWRIGHT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MW_SHA256_TEXT_BYTES 65u /* 64 digits and a NUL */
#define MW_MD5_TEXT_BYTES    33u

/* Each returns 0 or -ENOMEM; mw_md5_text also when the machine's policy forbids MD5. */
int mw_sha256_text(char text[MW_SHA256_TEXT_BYTES], const void *data, size_t bytes);
int mw_md5_text(char text[MW_MD5_TEXT_BYTES], const void *data, size_t bytes);

/* Whether `text` is `length` such digits. */
bool mw_hex_valid(const char *text, size_t length);

/* Two digits for each of `sum`, and a NUL. */
void mw_hex_text(char *text, const uint8_t *sum, size_t count);

#endif
