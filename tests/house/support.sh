# support.sh - what the house tests share: a scratch folder, and checks with their controls.
#
# A checker prints "place: reason" for each thing that it refuses, and fails if it printed one. A
# control is a checker that must refuse something made wrong on purpose, for the reason named.
# The tests run at the root of the source tree, with MW_BUILD, MW_CC and MW_PROGRAM from CTest.
# shellcheck shell=sh
set -eu

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
failures=0

# expect_pass WHAT COMMAND...
expect_pass() {
    what=$1
    shift
    "$@" >"$scratch/said" 2>&1 && return 0
    failed "$what"
}

# expect_refusal REASON COMMAND...: it must fail, and what it says must hold REASON.
expect_refusal() {
    reason=$1
    shift
    if "$@" >"$scratch/said" 2>&1; then
        failed "control: not refused, though it should be for: $reason"
    elif ! grep -qF -e "$reason" "$scratch/said"; then
        failed "control: refused, but not for: $reason"
    fi
}

# What a checker says of one thing; it fails, so a checker goes on with `|| return 1`.
refuse() {
    printf '%s\n' "$1"
    return 1
}

failed() {
    failures=$((failures + 1))
    printf 'FAILED %s\n' "$1"
    sed 's/^/    /' "$scratch/said"
}

# The last command of a test.
finish() {
    [ "$failures" -eq 0 ] || exit 1
}
