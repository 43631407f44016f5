// hiredis in its own idiom, blocking. usage: hiredis PORT
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int port;

#define check(what) \
    do { \
        if (!(what)) { \
            printf("FAIL line %d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static redisContext *connect_to(void) {
    struct timeval timeout = {20, 0};
    redisContext *c = redisConnectWithTimeout("127.0.0.1", port, timeout);
    check(c != NULL && !c->err);
    check(redisSetTimeout(c, timeout) == REDIS_OK);
    return c;
}

static int is_text(redisReply *r, const char *text) {
    return r && r->str && r->len == strlen(text) && memcmp(r->str, text, r->len) == 0;
}

static void expect_text(redisReply *r, const char *text) {
    check(is_text(r, text));
    freeReplyObject(r);
}

static void expect_int(redisReply *r, long long n) {
    check(r && r->type == REDIS_REPLY_INTEGER && r->integer == n);
    freeReplyObject(r);
}

static void pipelines(redisContext *c) {
    for (int i = 0; i < 10000; i++) check(redisAppendCommand(c, "SET p:%d %d", i, i) == REDIS_OK);
    check(redisAppendCommand(c, "LPUSH p:1 x") == REDIS_OK);
    redisReply *r;
    for (int i = 0; i < 10000; i++) {
        check(redisGetReply(c, (void **)&r) == REDIS_OK);
        check(r->type == REDIS_REPLY_STATUS);
        expect_text(r, "OK");
    }
    check(redisGetReply(c, (void **)&r) == REDIS_OK);
    check(r->type == REDIS_REPLY_ERROR && !strncmp(r->str, "WRONGTYPE", 9));
    freeReplyObject(r);
}

static void transactions(redisContext *c) {
    redisContext *other = connect_to();
    int done = 0;
    expect_text(redisCommand(c, "SET balance 0"), "OK");
    for (int tries = 0; tries < 100 && !done; tries++) {
        expect_text(redisCommand(c, "WATCH balance"), "OK");
        redisReply *r = redisCommand(c, "GET balance");
        int balance = atoi(r->str);
        freeReplyObject(r);
        // Somebody else is faster, three times.
        if (tries < 3) expect_int(redisCommand(other, "INCR balance"), tries + 1);
        expect_text(redisCommand(c, "MULTI"), "OK");
        expect_text(redisCommand(c, "SET balance %d", balance + 10), "QUEUED");
        expect_text(redisCommand(c, "INCR tries"), "QUEUED");
        r = redisCommand(c, "EXEC");
        check(tries < 3 ? r->type == REDIS_REPLY_NIL : r->type == REDIS_REPLY_ARRAY && r->elements == 2);
        done = r->type == REDIS_REPLY_ARRAY;
        freeReplyObject(r);
    }
    check(done);
    expect_text(redisCommand(c, "GET balance"), "13");
    redisFree(other);
}

static void messages(redisContext *c) {
    redisContext *listener = connect_to();
    redisReply *r = redisCommand(listener, "SUBSCRIBE news");
    check(r->elements == 3 && is_text(r->element[0], "subscribe"));
    freeReplyObject(r);
    for (int i = 0; i < 100; i++) expect_int(redisCommand(c, "PUBLISH news %d", i), 1);
    for (int i = 0; i < 100; i++) {
        char want[16];
        snprintf(want, sizeof want, "%d", i);
        check(redisGetReply(listener, (void **)&r) == REDIS_OK);
        check(r->elements == 3 && is_text(r->element[0], "message") && is_text(r->element[2], want));
        freeReplyObject(r);
    }
    redisFree(listener);
}

static void streams_and_pops(redisContext *c) {
    redisContext *waiting = connect_to();
    expect_text(redisCommand(c, "XGROUP CREATE s g $ MKSTREAM"), "OK");
    check(redisAppendCommand(waiting, "XREADGROUP GROUP g me BLOCK 10000 STREAMS s >") == REDIS_OK);
    int done = 0;
    while (!done) check(redisBufferWrite(waiting, &done) == REDIS_OK);
    expect_text(redisCommand(c, "XADD s 5-1 field value"), "5-1");
    redisReply *r;
    check(redisGetReply(waiting, (void **)&r) == REDIS_OK);
    check(r->elements == 1 && is_text(r->element[0]->element[0], "s"));
    check(is_text(r->element[0]->element[1]->element[0]->element[1]->element[1], "value"));
    freeReplyObject(r);
    expect_int(redisCommand(c, "XACK s g 5-1"), 1);
    check(redisAppendCommand(waiting, "BLPOP none jobs 10") == REDIS_OK);
    for (done = 0; !done;) check(redisBufferWrite(waiting, &done) == REDIS_OK);
    expect_int(redisCommand(c, "RPUSH jobs work"), 1);
    check(redisGetReply(waiting, (void **)&r) == REDIS_OK);
    check(r->elements == 2 && is_text(r->element[0], "jobs") && is_text(r->element[1], "work"));
    freeReplyObject(r);
    r = redisCommand(waiting, "BLPOP none 0.01");
    check(r->type == REDIS_REPLY_NIL);
    freeReplyObject(r);
    redisFree(waiting);
}

static void scan(redisContext *c) {
    char cursor[32] = "0";
    long seen = 0;
    for (int round = 0; round < 10000; round++) {
        redisReply *r = redisCommand(c, "SCAN %s MATCH p:* COUNT 200", cursor);
        check(r->type == REDIS_REPLY_ARRAY && r->elements == 2);
        snprintf(cursor, sizeof cursor, "%s", r->element[0]->str);
        seen += (long)r->element[1]->elements;
        freeReplyObject(r);
        if (!strcmp(cursor, "0")) break;
    }
    check(!strcmp(cursor, "0") && seen >= 10000);
}

static void scripts(redisContext *c) {
    const char *text = "return {redis.call('incrby', KEYS[1], ARGV[1]), false, 3.9, {err = 'MINE own'}}";
    redisReply *r = redisCommand(c, "SCRIPT LOAD %s", text);
    char sha[41];
    snprintf(sha, sizeof sha, "%s", r->str);
    freeReplyObject(r);
    expect_text(redisCommand(c, "SCRIPT FLUSH"), "OK");
    r = redisCommand(c, "EVALSHA %s 1 n 5", sha);
    check(r->type == REDIS_REPLY_ERROR && !strncmp(r->str, "NOSCRIPT", 8));
    freeReplyObject(r);
    for (int i = 1; i <= 2; i++) {
        r = i == 1 ? redisCommand(c, "EVAL %s 1 n 5", text) : redisCommand(c, "EVALSHA %s 1 n 5", sha);
        check(r->elements == 4 && r->element[0]->integer == 5 * i && r->element[1]->type == REDIS_REPLY_NIL);
        check(r->element[2]->integer == 3 && r->element[3]->type == REDIS_REPLY_ERROR && is_text(r->element[3], "MINE own"));
        freeReplyObject(r);
    }
}

static void large_and_binary(redisContext *c) {
    size_t bytes = 64u << 20;
    char *value = malloc(bytes);
    check(value != NULL);
    for (size_t i = 0; i < bytes; i++) value[i] = (char)(i * 31 + (i >> 12));
    const char key[] = {0, (char)255, '\r', '\n', (char)128};
    expect_text(redisCommand(c, "SET %b %b", key, sizeof key, value, bytes), "OK");
    redisReply *r = redisCommand(c, "GET %b", key, sizeof key);
    check(r->len == bytes && !memcmp(r->str, value, bytes));
    freeReplyObject(r);
    expect_int(redisCommand(c, "DEL %b", key, sizeof key), 1);
    free(value);
}

static void reconnect(redisContext *c) {
    redisContext *other = connect_to();
    redisReply *r = redisCommand(other, "CLIENT ID");
    expect_int(redisCommand(c, "CLIENT KILL ID %lld", r->integer), 1);
    freeReplyObject(r);
    check(redisCommand(other, "PING") == NULL && other->err != 0);
    check(redisReconnect(other) == REDIS_OK);
    expect_text(redisCommand(other, "PING"), "PONG");
    redisFree(other);
}

int main(int argc, char **argv) {
    check(argc == 2);
    port = atoi(argv[1]);
    redisContext *c = connect_to();
    expect_text(redisCommand(c, "FLUSHALL"), "OK");
    const struct {
        const char *name;
        void (*run)(redisContext *);
    } all[] = {{"pipelines", pipelines},
               {"transactions that are tried again", transactions},
               {"publish and subscribe", messages},
               {"streams and blocking pops", streams_and_pops},
               {"scan", scan},
               {"scripts", scripts},
               {"large values and binary keys", large_and_binary},
               {"reconnecting", reconnect}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        all[i].run(c);
        printf("ok   %s\n", all[i].name);
    }
    redisFree(c);
    return 0;
}
