/* Mounts an NFS export for the tests, because the kernel of a test machine often has no NFS client: FUSE in front, libnfs behind.
 *
 * usage: nfs_mount nfs://HOST/PATH?nfsport=N&version=4 FOLDER      (stays in the foreground; SIGTERM unmounts)
 *
 * Read-only. Attributes are kept for the window that NFS clients have (acregmin, 3 s; acdirmin is 30 s there and 3 s here), so a
 * reader meets what makes NFS hard: a change by another client shows late.
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <nfsc/libnfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct nfs_context *nfs;

static void fill(struct stat *out, const struct nfs_stat_64 *in) {
    memset(out, 0, sizeof *out);
    out->st_ino = in->nfs_ino;
    out->st_mode = in->nfs_mode;
    out->st_nlink = in->nfs_nlink;
    out->st_size = in->nfs_size;
    out->st_blocks = in->nfs_blocks;
    out->st_atim = (struct timespec){in->nfs_atime, in->nfs_atime_nsec};
    out->st_mtim = (struct timespec){in->nfs_mtime, in->nfs_mtime_nsec};
    out->st_ctim = (struct timespec){in->nfs_ctime, in->nfs_ctime_nsec};
}

static int get_attributes(const char *path, struct stat *out, struct fuse_file_info *file) {
    struct nfs_stat_64 got;
    (void)file;
    int failed = nfs_lstat64(nfs, path, &got);
    if (failed) return failed;
    fill(out, &got);
    return 0;
}

static int read_link(const char *path, char *out, size_t len) {
    return nfs_readlink(nfs, path, out, (int)len);
}

static int read_folder(const char *path, void *out, fuse_fill_dir_t add, off_t from, struct fuse_file_info *file,
                       enum fuse_readdir_flags flags) {
    struct nfsdir *folder;
    struct nfsdirent *entry;
    (void)from, (void)file, (void)flags;
    int failed = nfs_opendir(nfs, path, &folder);
    if (failed) return failed;
    while ((entry = nfs_readdir(nfs, folder)) != NULL) {
        if (add(out, entry->name, NULL, 0, 0)) break;
    }
    nfs_closedir(nfs, folder);
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *file) {
    struct nfsfh *handle;
    if ((file->flags & O_ACCMODE) != O_RDONLY) return -EROFS;
    int failed = nfs_open(nfs, path, O_RDONLY, &handle);
    if (failed) return failed;
    file->fh = (uint64_t)(uintptr_t)handle;
    return 0;
}

static int read_file(const char *path, char *out, size_t len, off_t offset, struct fuse_file_info *file) {
    (void)path;
    return nfs_pread(nfs, (struct nfsfh *)(uintptr_t)file->fh, (uint64_t)offset, len, out);
}

static int close_file(const char *path, struct fuse_file_info *file) {
    (void)path;
    return nfs_close(nfs, (struct nfsfh *)(uintptr_t)file->fh);
}

static void *start(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->use_ino = 1;
    config->attr_timeout = 3;
    config->entry_timeout = 3;
    config->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = start,
    .getattr = get_attributes,
    .readlink = read_link,
    .readdir = read_folder,
    .open = open_file,
    .read = read_file,
    .release = close_file,
};

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: nfs_mount nfs://HOST/PATH?nfsport=N&version=4 FOLDER\n");
        return 2;
    }
    nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(nfs, arguments[1]);
    if (url == NULL || nfs_mount(nfs, url->server, url->path)) {
        fprintf(stderr, "nfs_mount: %s: %s\n", arguments[1], nfs_get_error(nfs));
        return 1;
    }
    /* An operation ends after this many milliseconds: a server that is gone is an error and not a hang. */
    nfs_set_timeout(nfs, 5000);
    nfs_set_autoreconnect(nfs, 1);
    /* libnfs never looks whether a folder that it has listed has changed. */
    nfs_set_dircache(nfs, 0);
    char *ours[] = {arguments[0], "-f", "-s", "-o", "ro", arguments[2], NULL};
    return fuse_main(6, ours, &operations, NULL);
}
