#include <millwright/key.h>

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include <millwright/digest.h>

#include "key_internal.h"
#include "request_internal.h"

/* Changes whenever the same inputs are to give another key. */
#define KEY_SCHEME "millwright key 1"

#define HASH_BYTES 32u

static int hash_request(EVP_MD_CTX *hash, const struct mw_compile_request *request);
static int hash_text(EVP_MD_CTX *hash, const char *text);
static int hash_bytes(EVP_MD_CTX *hash, const void *data, size_t bytes);
static int hash_number(EVP_MD_CTX *hash, uint64_t number);

int mw_key_compute(struct mw_key *key, struct mw_toolchain *toolchain,
                   const struct mw_options *options, const struct mw_compile_request *request)
{
    uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES];
    int error = mw_toolchain_stamp(toolchain, stamp);

    return error < 0 ? error : mw_key_compute_at(key, toolchain, stamp, options, request);
}

int mw_key_compute_at(struct mw_key *key, const struct mw_toolchain *toolchain,
                      const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                      const struct mw_options *options, const struct mw_compile_request *request)
{
    return mw_key_compute_as(key, KEY_SCHEME, toolchain, stamp, options, request);
}

int mw_key_compute_as(struct mw_key *key, const char *scheme, const struct mw_toolchain *toolchain,
                      const uint8_t stamp[MW_TOOLCHAIN_STAMP_BYTES],
                      const struct mw_options *options, const struct mw_compile_request *request)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    uint8_t sum[HASH_BYTES];
    int error = 0;

    if (!hash || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1 || hash_text(hash, scheme) < 0 ||
        hash_text(hash, mw_toolchain_identity(toolchain)) < 0 ||
        hash_text(hash, mw_options_fingerprint(options)) < 0 || hash_request(hash, request) < 0 ||
        hash_bytes(hash, stamp, MW_TOOLCHAIN_STAMP_BYTES) < 0 ||
        EVP_DigestFinal_ex(hash, sum, NULL) != 1)
        error = -ENOMEM; /* the only way in which a digest in memory fails */
    EVP_MD_CTX_free(hash);
    if (error == 0)
        mw_hex_text(key->text, sum, HASH_BYTES);
    return error;
}

bool mw_key_valid(const char *text, size_t length)
{
    if (length != MW_KEY_TEXT_BYTES - 1)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
    }
    return true;
}

static int hash_request(EVP_MD_CTX *hash, const struct mw_compile_request *request)
{
    const struct mw_source_file **files = NULL;
    int error = mw_request_files_sort(request, &files);

    if (error < 0)
        return error;
    if (hash_text(hash, request->directory) < 0 || hash_text(hash, request->main) < 0 ||
        hash_number(hash, request->file_count) < 0)
        error = -ENOMEM;
    for (size_t i = 0; error == 0 && i < request->file_count; i++) {
        error = hash_text(hash, files[i]->name);
        if (error == 0)
            error = hash_bytes(hash, files[i]->data, files[i]->bytes);
    }
    free(files);
    return error;
}

static int hash_text(EVP_MD_CTX *hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text));
}

static int hash_bytes(EVP_MD_CTX *hash, const void *data, size_t bytes)
{
    int error = hash_number(hash, bytes);

    if (error < 0 || bytes == 0)
        return error;
    return EVP_DigestUpdate(hash, data, bytes) == 1 ? 0 : -ENOMEM;
}

/* In one byte order, so that the key does not depend on the machine. */
static int hash_number(EVP_MD_CTX *hash, uint64_t number)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
    return EVP_DigestUpdate(hash, bytes, sizeof bytes) == 1 ? 0 : -ENOMEM;
}
