package org.falkirk;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** Incarnations of a region write states side by side, and none changes what another one reads. A folder is the store. */
public final class RegionFilesTest {
    private static final String STATE = "/live/state/0/1/";
    private final java.nio.file.Path root = Files.createTempDirectory("regions");
    private final Configuration conf = new Configuration(false);

    public RegionFilesTest() throws IOException {
        conf.set("fs.file.impl", RawLocalFileSystem.class.getName());
        conf.set("fs.s3a.impl", Objects.class.getName());
        conf.set("fs.falkirk.impl", RegionFiles.class.getName());
        conf.set("folder", root.toString());
        for (String scheme : List.of("file", "s3a", "falkirk")) {
            conf.setBoolean("fs." + scheme + ".impl.disable.cache", true);
        }
    }

    /** A folder with the interface of an object store, as far as it is used. */
    public static final class Objects extends RawLocalFileSystem {
        private String folder;

        @Override
        public void initialize(URI name, Configuration conf) throws IOException {
            super.initialize(URI.create("file:///"), conf);
            folder = conf.get("folder");
        }

        private Path local(Path path) {
            return new Path("file", null, folder + path.toUri().getPath());
        }

        @Override
        protected void checkPath(Path path) {}

        @Override
        public FSDataInputStream open(Path path, int buffer) throws IOException {
            return super.open(local(path), buffer);
        }

        @Override
        public FSDataOutputStream create(
                Path path, FsPermission rights, boolean overwrite, int buffer, short copies, long block, Progressable progress)
                throws IOException {
            return super.create(local(path), overwrite, buffer, copies, block, progress);
        }

        @Override
        public FileStatus[] listStatus(Path path) throws IOException {
            return super.listStatus(local(path));
        }

        @Override
        public FileStatus getFileStatus(Path path) throws IOException {
            return path.toUri().getPath().startsWith(folder) ? super.getFileStatus(path) : super.getFileStatus(local(path));
        }
    }

    private FileSystem files() throws IOException {
        return new Path("falkirk://shop/").getFileSystem(conf);
    }

    private Path at(String incarnation, String name) {
        return new Path("falkirk://shop/regions/counts/" + incarnation + STATE + name);
    }

    private void write(Path path, String text) throws IOException {
        try (FSDataOutputStream out = new RegionFileManager(path, conf).createAtomic(path, true)) {
            out.write(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    private String read(Path path) throws IOException {
        try (FSDataInputStream in = files().open(path)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private List<String> names(Path folder) throws IOException {
        return Arrays.stream(files().listStatus(folder)).map(each -> each.getPath().getName()).sorted().toList();
    }

    private void begin(String incarnation, String base) throws IOException {
        java.nio.file.Path folder = Files.createDirectories(root.resolve("regions/counts/" + incarnation));
        Files.writeString(folder.resolve("base.json"), base);
    }

    /** The first incarnation has written a version and a file without an id, and the second one begins with both. */
    private void twoIncarnations() throws IOException {
        begin("first", "{}");
        write(at("first", "1_a.changelog"), "one");
        write(at("first", "_metadata/v2/0"), "old");
        begin("second", "{\"state/0/1/1_a.changelog\":[\"first/live\",3],\"state/0/1/_metadata/v2/0\":[\"first/live\",3]}");
    }

    public void aLaterIncarnationReadsTheFilesOfAFormerOne() throws IOException {
        twoIncarnations();
        write(at("second", "2_b.changelog"), "two");
        Check.equal(read(at("second", "1_a.changelog")), "one");
        Check.equal(read(at("second", "_metadata/v2/0")), "old");
        Check.equal(names(at("second", "")), List.of("1_a.changelog", "2_b.changelog", "_metadata"));
        Check.equal(files().getFileStatus(at("second", "1_a.changelog")).getLen(), 3L);
        Check.that(files().getFileStatus(at("second", "_metadata/v2")).isDirectory(), "a folder of former files is there");
        Check.that(!files().exists(at("second", "9_z.zip")), "no other file is there");
        Check.thrown(FileNotFoundException.class, () -> files().open(at("second", "9_z.zip")));
    }

    /** As a former owner does whose executors still run. */
    public void aFormerIncarnationChangesNothingOfALaterOne() throws IOException {
        twoIncarnations();
        write(at("first", "_metadata/v2/1"), "late");
        write(at("first", "2_late.changelog"), "late");
        files().delete(at("first", "1_a.changelog"), false);
        files().delete(at("first", "_metadata/v2/0"), false);
        Check.equal(read(at("second", "1_a.changelog")), "one");
        Check.equal(read(at("second", "_metadata/v2/0")), "old");
        Check.equal(names(at("second", "")), List.of("1_a.changelog", "_metadata"));
        Check.equal(names(at("second", "_metadata/v2")), List.of("0"));
        Check.equal(names(at("first", "")), List.of("2_late.changelog", "_metadata"));
    }

    public void aLaterIncarnationReadsItsOwnFileOfAName() throws IOException {
        twoIncarnations();
        write(at("second", "_metadata/v2/0"), "new");
        Check.equal(read(at("second", "_metadata/v2/0")), "new");
        Check.equal(read(at("first", "_metadata/v2/0")), "old");
    }

    /** An older checkpoint may have it. */
    public void aDeletionHidesAFileAndKeepsItsObject() throws IOException {
        twoIncarnations();
        write(at("second", "2_b.changelog"), "two");
        for (String name : List.of("1_a.changelog", "2_b.changelog")) {
            files().delete(at("second", name), false);
        }
        Check.equal(names(at("second", "")), List.of("_metadata"));
        Check.equal(Files.readString(root.resolve("regions/counts/first" + STATE + "1_a.changelog")), "one");
        Check.equal(Files.readString(root.resolve("regions/counts/second" + STATE + "2_b.changelog")), "two");
    }

    /** Logs are files of the driver's machine, under the same root, and a rename makes them appear. */
    public void logsAreInTheFolderOfTheDriver() throws IOException {
        begin("first", "{}");
        java.nio.file.Path logs = Files.createTempDirectory("logs");
        String checkpoint = "falkirk://shop/regions/counts/first/live";
        RegionFiles.begin(checkpoint, logs.toString());
        Path log = new Path(checkpoint + "/commits/0");
        files().mkdirs(log.getParent());
        write(log, "v1");
        Check.equal(Files.readString(logs.resolve("commits/0")), "v1");
        Check.equal(read(log), "v1");
        Check.equal(names(log.getParent()), List.of("0"));
        try (Stream<java.nio.file.Path> objects = Files.walk(root)) {
            Check.equal(objects.filter(Files::isRegularFile).count(), 1L); // base.json
        }
        RegionFiles.end(checkpoint);
        Check.thrown(FileNotFoundException.class, () -> files().open(log));
    }
}
