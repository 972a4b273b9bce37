package org.falkirk;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32C;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import net.jpountz.lz4.LZ4BlockOutputStream;
import org.apache.hadoop.conf.Configuration;

/** The damaged file of a state is found, wherever it is among those that a version needs, and no other one. */
public final class StateFilesTest {
    private final Path folder;

    public StateFilesTest() throws IOException {
        folder = Files.createTempDirectory("state");
    }

    private void write(String name, byte[] content, boolean sum) throws IOException {
        Files.write(Files.createDirectories(folder.resolve(name).getParent()).resolve(Path.of(name).getFileName()), content);
        if (!sum) return;
        CRC32C crc = new CRC32C();
        crc.update(content);
        String text = "{\"algorithm\":\"CRC32C\",\"value\":" + crc.getValue() + ",\"mainFileSize\":" + content.length + "}";
        Files.writeString(folder.resolve(name + ".crc"), text);
    }

    private void changes(int version, int... before) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        StringBuilder lineage = new StringBuilder();
        for (int each : before) {
            lineage.append(lineage.isEmpty() ? "" : ",")
                .append("{\"version\":" + each + ",\"checkpointUniqueId\":\"id" + each + "\"}");
        }
        try (DataOutputStream out = new DataOutputStream(new LZ4BlockOutputStream(bytes))) {
            out.writeUTF("v3");
            out.writeUTF("[" + lineage + "]");
            byte[] noise = new byte[1000];
            new Random(version).nextBytes(noise);
            out.write(noise);
        }
        write(version + "_id" + version + ".changelog", bytes.toByteArray(), true);
    }

    private void snapshot(int version, String... shared) throws IOException {
        StringBuilder named = new StringBuilder();
        for (String each : shared) {
            named.append(named.isEmpty() ? "" : ",").append("{\"localFileName\":\"1.sst\",\"dfsSstFileName\":\"" + each + "\"}");
            write("SSTs/" + each, each.getBytes(StandardCharsets.UTF_8), false);
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ZipOutputStream zip = new ZipOutputStream(bytes)) {
            zip.putNextEntry(new ZipEntry("metadata"));
            zip.write(("v1\n{\"sstFiles\":[" + named + "],\"numKeys\":1}").getBytes(StandardCharsets.UTF_8));
        }
        write(version + "_id" + version + ".zip", bytes.toByteArray(), true);
    }

    private String damage(int version) throws IOException {
        return StateFiles.damage(new Configuration(), folder.toString(), version, "id" + version);
    }

    private void alter(String name) throws IOException {
        byte[] content = Files.readAllBytes(folder.resolve(name));
        content[content.length / 2] ^= 0x5A;
        Files.write(folder.resolve(name), content);
    }

    private void history() throws IOException {
        changes(1);
        changes(2, 1);
        snapshot(3, "one.sst", "two.sst");
        changes(3, 2, 1);
        changes(4, 3);
        changes(5, 4, 3);
        changes(6, 5, 4, 3);
    }

    public void aWholeStateHasNoDamage() throws IOException {
        history();
        for (int version = 1; version <= 6; version++) {
            Check.equal(damage(version), "");
        }
    }

    public void theDamagedFileIsNamedByAllThatNeedIt() throws IOException {
        history();
        alter("4_id4.changelog");
        Check.equal(List.of(damage(3), damage(4).split(" ")[0], damage(6).split(" ")[0]), List.of("", "4", "4"));
    }

    public void missingAndTornFiles() throws IOException {
        history();
        Files.delete(folder.resolve("5_id5.changelog"));
        Check.equal(damage(6), "5 5_id5.changelog is missing");
        changes(5, 4, 3);
        byte[] content = Files.readAllBytes(folder.resolve("6_id6.changelog"));
        Files.write(folder.resolve("6_id6.changelog"), java.util.Arrays.copyOf(content, 100));
        Check.equal(damage(6), "6 6_id6.changelog has 100 bytes instead of " + content.length);
        Files.writeString(folder.resolve("6_id6.changelog.crc"), "{\"algo");
        Check.equal(damage(6), "6 6_id6.changelog.crc can't be read");
    }

    public void aSnapshotAndTheFilesThatItNames() throws IOException {
        history();
        alter("2_id2.changelog"); // nothing needs it since the snapshot
        Check.equal(damage(6), "");
        Files.delete(folder.resolve("SSTs/two.sst"));
        Check.equal(damage(6), "3 two.sst is missing");
        Check.equal(damage(2).split(" ")[0], "2");
        alter("3_id3.zip");
        Check.equal(damage(4), "3 3_id3.zip has other content than Spark wrote");
    }

    public void withoutASnapshotAllVersionsCount() throws IOException {
        history();
        Files.delete(folder.resolve("3_id3.zip"));
        Check.equal(damage(6), "");
        alter("1_id1.changelog");
        Check.equal(damage(6).split(" ")[0], "1");
    }

    public void hadoopsChecksumsCountToo() throws IOException {
        history();
        Configuration local = new Configuration();
        org.apache.hadoop.fs.Path sst = new org.apache.hadoop.fs.Path(folder.resolve("SSTs/one.sst").toString());
        try (java.io.OutputStream out = sst.getFileSystem(local).create(sst)) {
            out.write("written by Hadoop".getBytes(StandardCharsets.UTF_8));
        }
        Check.equal(damage(6), "");
        alter("SSTs/one.sst");
        Check.equal(damage(6).split(" ")[0], "3");
    }
}
